"""Rich results: from an object to a MIME bundle, as notebooks do it."""

import binascii
import builtins
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:
    from python import kernel

# Beyond these, a result keeps its text and HTML and loses the raw copy.
MAX_JSON = 1 << 20  # characters of repr, and of JSON, of a list or dict
MAX_PIXELS = 16000000  # of a picture; a larger one is shown smaller
MAX_PICTURE = 20 << 20  # bytes of its PNG
WINDOWLESS = ("agg", "cairo", "pdf", "pgf", "ps", "svg", "template")  # matplotlib's backends
CANARY = "_ipython_canary_method_should_not_exist_"

METHODS = (
    ("_repr_html_", "text/html"),
    ("_repr_markdown_", "text/markdown"),
    ("_repr_svg_", "image/svg+xml"),
    ("_repr_png_", "image/png"),
    ("_repr_jpeg_", "image/jpeg"),
    ("_repr_pdf_", "application/pdf"),
    ("_repr_latex_", "text/latex"),
    ("_repr_json_", "application/json"),
    ("_repr_javascript_", "application/javascript"),
)


def show(value, main):
    """Send an object as a result."""
    publish(bundle(value), main)


def publish(data, main):
    """Send a bundle of MIME type -> value (text, bytes or, for JSON types, anything)."""
    encoded = {}
    for kind, value in data.items():
        try:
            encoded[str(kind)] = encode(value)
        except Exception as e:
            complain("the %s form of a result was left out: %s: %s" % (kind, type(e).__name__, e))
    if not encoded:
        return
    if kernel.captured is not None:
        kernel.captured.append(encoded)
    elif kernel.control < 0:  # a forked child has no way to send results
        print(data.get("text/plain", ""))
    else:
        kernel.send_result(encoded, main)


class Raw(str):
    """Text that is JSON already."""


LEFT_OUT = Raw()  # stands for a form that is too large


def encode(value):
    if isinstance(value, Raw):
        return str(value)
    if isinstance(value, (bytes, bytearray, memoryview)):
        return kernel.quote(base64(value))
    if isinstance(value, str):
        return kernel.quote(value)
    return kernel.part("python_json").text_of(value)


def base64(data):
    return binascii.b2a_base64(bytes(data), newline=False).decode("ascii")


def complain(text):
    kernel.complain("[cubby] " + text)


def bundle(value):
    """Return the MIME bundle of an object. text/plain is always there."""
    if is_figure(value):
        return figure_bundle(value)
    if is_instance_of(value, "PIL.Image", "Image"):
        return image_bundle(value)
    data = {}
    if not isinstance(value, type) and not has_everything(value):
        data.update(from_mimebundle(value))
        for method, kind in METHODS:
            if kind not in data:
                form = call(value, method)
                if form is not None:
                    data[kind] = form
    if not isinstance(data.get("text/plain"), str):
        data["text/plain"] = repr(value)
    data.update(extras(value, data))
    return data


def extras(value, data):
    """Return the forms that E2B's clients know and notebooks do not have."""
    extra = {}
    if isinstance(value, (list, dict)) and "application/json" not in data:
        raw = json_of(value, len(data["text/plain"]))
        if raw is not None:
            extra["application/json"] = raw
    if is_instance_of(value, "pandas", "DataFrame"):
        add(extra, "e2b/data", kernel.part("python_json").frame_data, value)
    elif is_instance_of(value, "pandas", "Series"):
        add(extra, "text/html", lambda s: s.to_frame()._repr_html_(), value)
        add(extra, "e2b/data", lambda s: kernel.part("python_json").frame_data(s.to_frame()), value)
    return extra


def add(data, kind, make, value):
    try:
        form = make(value)
    except kernel.part("python_json").TooLarge:
        form = LEFT_OUT
    except Exception:
        return  # an extra form of something whose text is there
    if form is not None:
        data[kind] = form


def is_instance_of(value, module, name):
    """Report isinstance without importing the module."""
    kind = getattr(sys.modules.get(module), name, None)
    return isinstance(kind, type) and isinstance(value, kind)


def has_everything(value):
    """Report whether an object claims to have any attribute (a mock, a proxy)."""
    try:
        getattr(value, CANARY)
        return True
    except AttributeError:
        return False
    except Exception:
        return True


def call(value, method):
    try:
        function = getattr(value, method, None)
    except Exception:
        return None
    if not callable(function):
        return None
    try:
        form = function()
    except NotImplementedError:
        return None
    except Exception as e:
        complain("%s.%s failed: %s: %s" % (type(value).__name__, method, type(e).__name__, e))
        return None
    if isinstance(form, tuple) and len(form) == 2 and isinstance(form[1], dict):
        form = form[0]  # (data, metadata)
    return form


def from_mimebundle(value):
    try:
        function = getattr(value, "_repr_mimebundle_", None)
    except Exception:
        return {}
    if not callable(function):
        return {}
    try:
        data = function(include=None, exclude=None)
    except NotImplementedError:
        return {}
    except Exception as e:
        name = type(value).__name__
        complain("%s._repr_mimebundle_ failed: %s: %s" % (name, type(e).__name__, e))
        return {}
    if isinstance(data, tuple) and data:
        data = data[0]
    if not isinstance(data, dict):
        return {}
    return {kind: form for kind, form in data.items() if form is not None}


def json_of(value, size):
    """Return a list or dict as JSON, given the size of its repr; None if JSON cannot represent it."""
    if size > MAX_JSON:
        return LEFT_OUT
    try:
        text = kernel.part("python_json").text_of(value)
    except kernel.part("python_json").TooLarge:
        return LEFT_OUT
    except Exception:  # what has no form in JSON, or code of the user's that failed
        return None
    return Raw(text) if len(text) <= MAX_JSON else LEFT_OUT


# Pictures.


def is_figure(value):
    return is_instance_of(value, "matplotlib.figure", "Figure")


def figure_png(figure):
    import io

    out = io.BytesIO()
    figure.savefig(out, format="png", bbox_inches="tight")
    return out.getvalue()


def figure_bundle(figure):
    figure._cubby_shown = kernel.cell
    data = {"image/png": figure_png(figure), "text/plain": repr(figure)}
    add(data, "e2b/chart", kernel.part("python_chart").describe, figure)
    return data


def show_figures():
    """Show the open figures that this cell has not shown yet, and close all of them."""
    helpers = sys.modules.get("matplotlib._pylab_helpers")
    if helpers is None:
        return
    managers = helpers.Gcf.get_all_fig_managers()
    if not managers:
        return
    try:
        for manager in managers:
            figure = manager.canvas.figure
            if getattr(figure, "_cubby_shown", 0) == kernel.cell or not figure.get_children()[1:]:
                continue  # shown already, or empty
            publish(figure_bundle(figure), False)
    finally:
        sys.modules["matplotlib.pyplot"].close("all")


def image_bundle(image):
    """Return the bundle of a PIL image; only text if it cannot be encoded."""
    data = {"text/plain": repr(image)}
    try:
        data["image/png"] = image_png(image)
    except Exception as e:  # closed, cut off, without a pixel
        complain("the picture was left out: %s: %s" % (type(e).__name__, e))
    return data


def image_png(image):
    """Return a PIL image as a PNG, smaller if it is very large."""
    size = image.size
    if size[0] * size[1] > MAX_PIXELS:
        image = smaller(image, (MAX_PIXELS / float(size[0] * size[1])) ** 0.5)
    data = written(image)
    while len(data) > MAX_PICTURE:
        image = smaller(image, 0.5)
        data = written(image)
    if image.size != size:
        complain("a picture of %d x %d pixels is shown as %d x %d" % (size + image.size))
    return data


def written(image):
    import io

    for mode in (image.mode, "RGB", "L"):
        out = io.BytesIO()
        try:
            (image if mode == image.mode else image.convert(mode)).save(out, format="PNG")
            return out.getvalue()
        except (OSError, ValueError):
            if mode == "L":
                raise


def smaller(image, factor):
    """Return a copy of a picture with both sides shorter."""
    mode = image.mode if image.mode in ("L", "RGB", "RGBA") else "RGBA" if "transparency" in image.info else "RGB"
    width, height = (max(1, int(side * factor)) for side in image.size)
    return image.resize((width, height), reducing_gap=2.0) if mode == image.mode else image.convert(mode).resize((width, height))


# The display functions of packages, replaced by the kernel's.


def adopt(module):
    """Replace a freshly imported package's ways of display by the kernel's."""
    name = module.__name__
    if name == "matplotlib":
        adopt_matplotlib(module)
    elif name == "matplotlib.pyplot":
        adopt_pyplot(module)
    elif name == "matplotlib.axes._axes":
        kernel.part("python_chart").adopt_axes(module)
    elif name == "PIL.Image":
        adopt_images(module)
    elif name == "PIL.ImageShow":
        module.show = show_image
    elif kernel.shell is None:
        for hook in (display, publish_display_data, clear_output, update_display):
            if hasattr(module, hook.__name__):
                setattr(module, hook.__name__, hook)


def show_image(image, title=None, **options):
    """Show an image as a result: there is no display and no viewer."""
    publish(image_bundle(image), False)
    return True


def adopt_images(module):
    """Make an image a result when it is shown or saved to a path, as E2B does."""
    write = module.Image.save

    def save(self, fp, format=None, **params):
        write(self, fp, format, **params)
        # matplotlib writes its figures through here, and shows them itself.
        caller = sys._getframe(1).f_globals.get("__name__") or ""
        if isinstance(fp, str) and not caller.startswith(("matplotlib.", "PIL.")):
            publish(image_bundle(self), False)

    def show(self, title=None, **options):
        """Show the image as a result."""
        show_image(self)

    save.__doc__ = write.__doc__
    module.Image.save, module.Image.show = save, show


def adopt_matplotlib(matplotlib):
    choose = matplotlib.use

    def use(backend, *args, **options):
        """Select a backend, unless it needs a display: then keep the present one."""
        name = str(backend).lower()
        if name in WINDOWLESS or name.startswith("module://"):
            return choose(backend, *args, **options)
        complain("no display for matplotlib's %s: figures are shown as PNG instead" % backend)

    matplotlib.use = use


def adopt_pyplot(pyplot):
    def show(*args, **kwargs):
        """Show all open figures as results and close them."""
        show_figures()

    def show_one(self, *args, **kwargs):
        """Show the figure as a result."""
        publish(figure_bundle(self), False)

    pyplot.show = show
    pyplot.Figure.show = show_one


class Handle:
    """What display() returns when asked for an id."""

    def __init__(self, display_id):
        self.display_id = display_id

    def display(self, value, **options):
        display(value, **options)

    def update(self, value, **options):
        display(value, **options)


def display(*objects, **options):
    """Show objects as rich results; options are those of IPython's display."""
    raw = options.get("raw", False)
    for value in objects:
        publish(value if raw and isinstance(value, dict) else bundle(value), False)
    display_id = options.get("display_id")
    return Handle(display_id) if display_id else None


def publish_display_data(data, metadata=None, **options):
    """Show a ready MIME bundle."""
    publish(data, False)


def update_display(value, **options):
    """Show an object again: earlier results cannot be changed."""
    display(value)


def clear_output(wait=False):
    """Do nothing: output that was sent cannot be taken back."""


def stand_in(name):
    """Return the import spec of our small IPython, for machines without it."""
    from importlib.machinery import ModuleSpec

    return ModuleSpec(name, kernel.part("python_shim"), is_package=name in ("IPython", "IPython.core"))


getattr(builtins, "display").__doc__ = display.__doc__
