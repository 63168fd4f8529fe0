"""IPython.display for machines without IPython: the classes that code really uses.

The module itself is the loader of what it stands in for.
"""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    import python_display as hooks
    from python import kernel
else:
    hooks = kernel.part("python_display")


def create_module(spec):
    return None


def exec_module(module):
    if module.__name__ == "IPython":
        module.get_ipython = lambda: None
        module.version_info = (0, 0, 0)
        module.__version__ = "0.0.0"
        from IPython.display import display

        module.display_function = display
        return
    if module.__name__ == "IPython.core":
        return
    module.DisplayObject = Data
    for kind in Data.__subclasses__():
        setattr(module, kind.__name__, kind)
    for name in ("display", "publish_display_data", "clear_output", "update_display"):
        setattr(module, name, getattr(hooks, name))
    module.DisplayHandle = hooks.Handle
    for cls in (HTML, Markdown, Latex, SVG, JSON, JavaScript, Pretty):
        setattr(module, "display_" + cls.__name__.lower(), shower(cls))


def shower(cls):
    def show(*objects, **options):
        for value in objects:
            hooks.display(value if not isinstance(value, str) else cls(value))

    return show


class Data(object):
    """Text or bytes with a MIME type, from an argument, a file or a URL."""

    binary = False

    def __init__(self, data=None, url=None, filename=None, metadata=None, **options):
        if isinstance(data, str) and self.binary and url is None and filename is None:
            if data.startswith(("http://", "https://")):
                data, url = None, data
            elif len(data) < 4096:
                data, filename = None, data
        elif hasattr(data, "__fspath__"):
            data, filename = None, data
        self.data: "Any" = data
        self.url, self.filename = url, filename
        self.metadata, self.options = metadata or {}, options
        self.reload()

    def reload(self):
        if self.data is not None:
            return
        if self.filename is not None:
            with open(self.filename, "rb") as f:
                self.data = f.read()
        elif self.url is not None and self.fetches():
            from urllib.request import urlopen

            with urlopen(self.url) as f:
                self.data = f.read()
        if isinstance(self.data, bytes) and not self.binary:
            self.data = self.data.decode("utf-8", "replace")

    def fetches(self):
        return True

    def __repr__(self):
        return "<IPython.core.display.%s object>" % type(self).__name__


class HTML(Data):
    def _repr_html_(self):
        return self.data

    __html__ = _repr_html_


class Markdown(Data):
    def _repr_markdown_(self):
        return self.data


class Latex(Data):
    def _repr_latex_(self):
        return self.data


class Math(Data):
    def _repr_latex_(self):
        return "$\\displaystyle %s$" % self.data.strip("$")


class SVG(Data):
    def __init__(self, data=None, url=None, filename=None, **options):
        if isinstance(data, str) and "<" not in data and url is None and filename is None:
            data, filename = None, data
        Data.__init__(self, data, url, filename, **options)

    def _repr_svg_(self):
        return self.data


class JSON(Data):
    def reload(self):
        if isinstance(self.data, (str, bytes)) or self.data is None:
            import json

            Data.reload(self)
            text: "Any" = self.data
            self.data = json.loads(text)

    def _repr_json_(self):
        return self.data


class GeoJSON(Data):
    def _repr_mimebundle_(self, include=None, exclude=None):
        return {"application/geo+json": self.data}


class JavaScript(Data):
    def _repr_javascript_(self):
        return self.data


class Pretty(Data):
    def __repr__(self):
        return str(self.data)


class Image(Data):
    binary = True

    def fetches(self):
        return bool(self.options.get("embed"))

    def _repr_mimebundle_(self, include=None, exclude=None):
        data = self.data
        if data is None:
            return {"text/html": '<img src="%s"/>' % self.url}
        for start, kind in (
            (b"\x89PNG", "image/png"),
            (b"\xff\xd8", "image/jpeg"),
            (b"GIF8", "image/gif"),
            (b"%PDF", "application/pdf"),
        ):
            if bytes(data[:4]).startswith(start):
                return {kind: data}
        return {"image/" + str(self.options.get("format") or "png"): data}


class Audio(Data):
    binary = True

    def _repr_html_(self):
        return media("audio", "audio/wav", self)


class Video(Data):
    binary = True

    def _repr_html_(self):
        return media("video", "video/mp4", self)


class IFrame(Data):
    def __init__(self, src, width="100%", height=400, **options):
        self.src, self.width, self.height = src, width, height

    def _repr_html_(self):
        return '<iframe src="%s" width="%s" height="%s"></iframe>' % (
            self.src,
            self.width,
            self.height,
        )


class FileLink(Data):
    def __init__(self, path, **options):
        self.path = str(path)

    def __repr__(self):
        return self.path

    def _repr_html_(self):
        return '<a href="%s">%s</a>' % (self.path, self.path)


def media(tag, kind, item):
    source = item.url
    if isinstance(item.data, (bytes, bytearray)):
        source = "data:%s;base64,%s" % (kind, hooks.base64(item.data))
    return '<%s controls src="%s"></%s>' % (tag, source, tag)

