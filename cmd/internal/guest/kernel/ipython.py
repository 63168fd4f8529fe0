"""IPython's shell behind the same events, for contexts that ask for it."""

import os
import sys
import warnings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from python import kernel


class Shell:
    """Runs cells in IPython; the shell is made at the first cell, which it delays."""

    def __init__(self):
        self.shell: "Any" = None
        self.failure = None

    def open(self):
        from IPython.core.displayhook import DisplayHook
        from IPython.core.displaypub import DisplayPublisher
        from IPython.core.interactiveshell import InteractiveShell
        from traitlets import Type
        from traitlets.config import Config

        class Hook(DisplayHook):
            """Sends the value of a cell."""

            def write_output_prompt(self):
                pass

            def write_format_data(self, format_dict, md_dict=None):
                hooks().publish(rich(self.exec_result.result, format_dict), True)

            def finish_displayhook(self):
                pass

        class Publisher(DisplayPublisher):
            """Sends what display() is given."""

            def publish(self, data, metadata=None, **options):
                hooks().publish(data, False)

            def clear_output(self, wait=False):
                pass

        class CubbyShell(InteractiveShell):
            displayhook_class = Type(Hook)
            display_pub_class = Type(Publisher)

            def enable_gui(self, gui=None):
                pass

            def init_sys_modules(self):
                pass  # the kernel's __main__ stays

            def system(shell, cmd):
                shell.system_raw(cmd)  # not through a terminal
                if shell.user_ns.get("_exit_code"):
                    kernel.command_failed = True

            def showtraceback(shell, *args, **kwargs):
                pass  # run() reports it

            def showsyntaxerror(shell, *args, **kwargs):
                pass

            def showindentationerror(shell):
                pass

            def raw_input(self, prompt=""):
                return __import__("builtins").input(prompt)

        config = Config()
        config.InteractiveShell.colors = "NoColor"
        config.HistoryManager.enabled = False
        config.InteractiveShell.autocall = 0
        config.InteractiveShell.automagic = True
        shell = CubbyShell.instance(config=config, user_module=kernel.main, user_ns=kernel.ns)
        active = shell.display_formatter.active_types
        shell.display_formatter.active_types = list(active) + [
            "text/html", "text/markdown", "image/svg+xml", "image/png", "image/jpeg",
            "application/pdf", "text/latex", "application/json", "application/javascript",
        ]
        register_pictures(shell)
        package = os.path.dirname(getattr(sys.modules["IPython"], "__file__"))
        kernel.hidden += (package + os.sep,)
        warnings.filterwarnings("ignore", "To exit: use", UserWarning)
        return shell

    def run(self, code):
        """Run a cell; return how it failed, or None."""
        if self.shell is None:
            try:
                self.shell = self.open()
            except ImportError as e:
                text = (
                    "IPython's shell was asked for but IPython is not installed for %s (%s)"
                    % (sys.executable, e)
                )
                return 1, "ModuleNotFoundError", text, "ModuleNotFoundError: " + text
        result = self.shell.run_cell(code, store_history=True)
        error = result.error_before_exec or result.error_in_exec
        if error is None:
            return None
        return kernel.describe(error)


def hooks():
    return kernel.part("python_display")


def rich(value, data):
    """Add our forms of frames and containers to IPython's."""
    own = hooks().extras(value, data)
    own.update(data)
    return own


def register_pictures(shell):
    """Show figures and images as PNG, and figures as charts."""
    png = shell.display_formatter.formatters["image/png"]

    def bundle(figure, include=None, exclude=None):
        return hooks().figure_bundle(figure)

    shell.display_formatter.mimebundle_formatter.for_type_by_name("matplotlib.figure", "Figure", bundle)
    png.for_type_by_name("PIL.Image", "Image", lambda i: hooks().image_bundle(i)["image/png"])
