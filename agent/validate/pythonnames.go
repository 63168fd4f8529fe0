package validate

import "strings"

// What names of Python stand for. The longest beginning of a name, in words,
// decides; "" is nothing to ask a policy about.
const (
	kindNone    = ""
	kindDynamic = "dynamic"
	kindFile    = "file"
	kindProcess = "process"
	kindNetwork = "network"
	kindNative  = "native"
)

var pythonKinds = kinds(map[string]string{
	kindDynamic: `builtins.eval builtins.exec builtins.compile builtins.__import__ builtins.globals builtins.locals builtins.vars
		builtins.breakpoint builtins importlib imp runpy code codeop pickle.load pickle.loads pickle.Unpickler _pickle cPickle marshal.load
		marshal.loads shelve dill cloudpickle joblib.load pandas.read_pickle pandas.eval types.CodeType types.FunctionType
		sys.modules sys._getframe sys._current_frames sys.settrace sys.setprofile sys.meta_path sys.path_hooks gc.get_objects
		gc.get_referrers gc.get_referents inspect.currentframe inspect.stack pkgutil zipimport`,
	kindFile: `builtins.open io.open io.FileIO codecs.open os.open os.fdopen os.remove os.unlink os.rename os.renames os.replace os.rmdir
		os.removedirs os.mkdir os.makedirs os.chmod os.chown os.lchown os.link os.symlink os.truncate os.mkfifo os.mknod os.listdir
		os.scandir os.walk os.fwalk os.readlink os.chdir os.chroot os.utime shutil pathlib tempfile glob fileinput linecache
		zipfile tarfile sqlite3.connect dbm`,
	kindProcess: `subprocess pty multiprocessing _posixsubprocess concurrent.futures.ProcessPoolExecutor
		concurrent.futures.process asyncio.create_subprocess_exec asyncio.create_subprocess_shell asyncio.subprocess os.system os.popen
		os.fork os.forkpty os.kill os.killpg os.execl os.execle os.execlp os.execlpe os.execv os.execve os.execvp os.execvpe os.spawnl
		os.spawnle os.spawnlp os.spawnlpe os.spawnv os.spawnve os.spawnvp os.spawnvpe os.posix_spawn os.posix_spawnp os.startfile
		os.setuid os.setgid os.setsid os.nice platform.popen commands pexpect sh plumbum psutil.Popen`,
	kindNetwork: `socket _socket socketserver ssl urllib.request urllib3 http.client http.server requests httpx aiohttp ftplib smtplib
		poplib imaplib nntplib telnetlib xmlrpc websocket websockets paramiko pycurl boto3 botocore webbrowser asyncio.open_connection
		asyncio.start_server asyncio.open_unix_connection grpc scapy openai anthropic`,
	kindNative: `ctypes _ctypes cffi _cffi_backend mmap resource.setrlimit signal.pthread_kill faulthandler._sigsegv`,
	kindNone:   `importlib.metadata importlib.resources multiprocessing.cpu_count`,
})

func kinds(lists map[string]string) map[string]string {
	m := map[string]string{}
	for kind, list := range lists {
		for name := range strings.FieldsSeq(list) {
			m[name] = kind
		}
	}
	return m
}

var remedies = map[string]string{
	kindDynamic: "write the code itself; json.loads and ast.literal_eval read data",
	kindProcess: "do it in Python",
	kindNetwork: "use the files that are there",
	kindNative:  "use Python's own modules",
}

var doings = map[string]string{
	kindDynamic: "makes code, or reaches for it, while it runs",
	kindFile:    "uses files",
	kindProcess: "starts or ends other programs",
	kindNetwork: "uses the network",
	kindNative:  "reaches for memory and machine code",
}

// useOf makes a fact of the full name of something that is used.
func useOf(name, detail string) (Fact, bool) {
	known := name
	if rest, ok := strings.CutPrefix(known, "posix."); ok {
		known = "os." + rest
	}
	kind, ok := pythonKinds[known]
	for !ok {
		i := strings.LastIndexByte(known, '.')
		if i < 0 {
			return Fact{}, false
		}
		known = known[:i]
		kind, ok = pythonKinds[known]
	}
	if kind == kindNone {
		return Fact{}, false
	}
	name = strings.TrimPrefix(name, "builtins.")
	id := "python." + kind + "." + name
	if kind == kindFile && (detail == "read" || detail == "write") {
		id += "." + detail
	}
	return Fact{ID: id, Message: name + " " + doings[kind], Remedy: remedies[kind]}, true
}

// harmlessDunders are those of ordinary code.
var harmlessDunders = words(`__init__ __name__ __doc__ __file__ __version__ __all__ __main__ __len__ __repr__ __str__ __eq__ __ne__ __lt__
	__le__ __gt__ __ge__ __hash__ __iter__ __next__ __enter__ __exit__ __aenter__ __aexit__ __call__ __contains__ __getitem__
	__setitem__ __delitem__ __add__ __radd__ __sub__ __mul__ __truediv__ __floordiv__ __mod__ __pow__ __neg__ __abs__ __bool__
	__int__ __float__ __round__ __format__ __new__ __post_init__ __annotations__ __slots__ __await__ __aiter__ __anext__
	__array__ __and__ __or__ __xor__ __invert__ __lshift__ __rshift__ __matmul__ __iadd__ __isub__ __imul__ __copy__ __deepcopy__
	__qualname__ __members__ __debug__ __path__ __package__ __future__ __missing__ __reversed__ __index__ __complex__ __bytes__`)

func words(list string) map[string]bool {
	m := map[string]bool{}
	for name := range strings.FieldsSeq(list) {
		m[name] = true
	}
	return m
}
