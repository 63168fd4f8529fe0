package posixws

// The scripts are for any POSIX shell. Their first argument is a word that
// nobody in the machine knows before: a line of stderr that begins with it comes
// from the script, not from the program.

// launch runs a program: nonce, workspace, folder, run folder, blocks of 512
// bytes that bound each file (0: none), then the arguments of env. It writes down
// which group the program leads, or else ("p") which process it is.
const launch = `fail() { printf '%s %s\n' "$nonce" "$1" >&2; exit 125; }
nonce=$1 root=$2 cwd=$3 run=$4 blocks=$5; shift 5
cd -P -- "$root" 2>/dev/null || fail gone
root=$PWD
mkdir -p -- "$run" 2>/dev/null || fail run
cd -P -- "$cwd" 2>/dev/null || fail cwd
case $PWD/ in "$root"/*) ;; *) fail outside;; esac
read -r _ _ _ _ group _ </proc/self/stat && [ "$group" = "$$" ] || group=p$$
printf '%s\n' "$group" >"$root/$run/.leader" || fail run
[ "$blocks" = 0 ] || ulimit -f "$blocks" 2>/dev/null || fail limit
exec env "$@"`

// lead starts a script as leader of a process group: script and its arguments.
const lead = `read -r _ _ _ _ group _ </proc/self/stat
if [ "$group" != "$$" ] && command -v setsid >/dev/null 2>&1; then exec setsid sh -c "$@"; fi
exec sh -c "$@"`

// signal sends a signal to what a launch wrote down: file, signal.
const signal = `read -r leader <"$1" || exit 3
case $leader in p*) leader=${leader#p} minus=;; *) minus=-;; esac
case $leader in ''|0|1|*[!0-9]*) exit 3;; esac
kill -s "$2" -- "$minus$leader"`

// create makes a workspace: nonce, root, name, "keep" or "new", then folders.
// Its input is a record. It prints the record of a workspace that it found.
const create = `fail() { printf '%s %s\n' "$nonce" "$1" >&2; exit 125; }
nonce=$1 root=$2 name=$3 keep=$4; shift 4
umask 022
mkdir -p -- "$root" || fail root
cd -P -- "$root" || fail root
if [ "$keep" = keep ]; then mkdir -p -- "$name" || fail root; else mkdir -- "$name" || fail exists; fi
cd -P -- "$name" || fail root
mkdir -p -- "$@" || fail root
if [ -f metadata.json ] && [ ! -L metadata.json ]; then printf '%s found\n' "$nonce" >&2; head -c 1048576 metadata.json
else
  new=.metadata.$$.tmp; trap 'rm -f -- "$new"' EXIT
  cat >"$new" && mv -f -- "$new" metadata.json || fail root
fi`

// remove removes workspaces: absolute paths.
const remove = `for ws in "$@"; do
  [ -e "$ws" ] || [ -L "$ws" ] || continue
  [ -L "$ws" ] || chmod -R u+rwX -- "$ws" 2>/dev/null
  rm -rf -- "$ws" || exit 1
done`

// list lists what is below folders of a workspace: nonce, workspace, folders. An
// entry is a folder's number, a kind (find's letters; F: a link to a file inside;
// X: a link elsewhere), a size, the path below the folder, NUL, and the absolute
// path of what it is in truth, NUL. Before all comes the workspace's real path.
const list = `fail() { printf '%s %s\n' "$nonce" "$1" >&2; exit 125; }
nonce=$1; cd -P -- "$2" 2>/dev/null || fail gone; shift 2
root=$PWD n=0
find . -maxdepth 0 -printf '' 2>/dev/null || fail find
printf '%s\0' "$root"
for base in "$@"; do
  real=$(readlink -f -- "$base" && echo .) && real=${real%
.} || real=
  if [ -e "$base" ]; then
    case $real/ in
    "$root"/*)
      find "$real" \( -type l -exec sh -c '
        root=$1 n=$2 real=$3; shift 3
        for link; do
          to=$(readlink -f -- "$link" && echo .) && to=${to%
.} || to=
          name=${link#"$real"}; name=${name#/}
          case $to in
          "$root"/*) if [ -f "$to" ]; then printf "%s F %s %s\0%s\0" "$n" "$(stat -c %s -- "$to")" "$name" "$to"; else printf "%s X 0 %s\0\0" "$n" "$name"; fi;;
          *) printf "%s X 0 %s\0\0" "$n" "$name";;
          esac
        done' sh "$root" "$n" "$real" {} + \) -o \( ! -type d -printf "$n %y %s %P\0%p\0" \);;
    *) printf '%s X 0 \0\0' "$n";;
    esac
  elif [ -L "$base" ]; then printf '%s X 0 \0\0' "$n"
  fi
  n=$((n+1))
done`

// listOwn lists the regular files of a folder by their own names: nonce, folder,
// how many levels deep. An entry is a size, times and number, the name, NUL.
const listOwn = `fail() { printf '%s %s\n' "$nonce" "$1" >&2; exit 125; }
nonce=$1; [ ! -L "$2" ] && cd -P -- "$2" 2>/dev/null || fail gone
find . -maxdepth 0 -printf '' 2>/dev/null || fail find
find . -maxdepth "$3" -type f -printf '%s %T@/%C@/%i %P\0'`

// pack archives the files that its input names, each ended by NUL: nonce,
// workspace. Files that are gone are left out.
const pack = `nonce=$1; cd -P -- "$2" 2>/dev/null || { printf '%s gone\n' "$nonce" >&2; exit 125; }
command -v tar >/dev/null 2>&1 || { printf '%s tar\n' "$nonce" >&2; exit 125; }
tar -cf - --format=gnu --hard-dereference --no-recursion --null -T - 2>/dev/null`

// heads prints the first bytes of files in base64, a line each: nonce,
// workspace. Its input is counts and names in turn, each ended by NUL. A line of
// "!" is a file that cannot be read.
const heads = `nonce=$1; cd -P -- "$2" 2>/dev/null || { printf '%s gone\n' "$nonce" >&2; exit 125; }
xargs -0 -r -n 32 sh -c 'while [ $# -gt 1 ]; do
  if [ -f "$2" ] && [ ! -L "$2" ] && [ -r "$2" ]; then head -c "$1" -- "$2" | base64 -w 0; echo; else echo "!"; fi
  shift 2
done' sh`

// place copies or links inside a workspace: nonce, workspace, then groups of
// "copy" or "link", "ro" or "rw", from, to.
const place = `fail() { printf '%s %s\n' "$nonce" "$1" >&2; exit 125; }
nonce=$1; cd -P -- "$2" 2>/dev/null || fail gone; shift 2
root=$PWD n=0
inside() { case $1 in "$root"|"$root"/*) return 0;; esac; return 1; }
while [ $# -gt 3 ]; do
  from=$(readlink -e -- "$3" && echo .) && from=${from%
.} || fail "missing $n"
  inside "$from" || fail "outside $n"
  mkdir -p -- "$(dirname -- "$4")" || fail "place $n"
  into=$(readlink -f -- "$(dirname -- "$4")" && echo .) && into=${into%
.} || fail "place $n"
  inside "$into" || fail "outside $n"
  to=$into/$(basename -- "$4")
  [ "$from" != "$to" ] || fail "same $n"
  case $to/ in "$from"/*) fail "same $n";; esac
  rm -rf -- "$to" || fail "place $n"
  if [ "$1" = link ]; then ln -s -- "$from" "$to" || fail "place $n"
  else
    cp -RP -- "$from" "$to" || fail "place $n"
    [ "$2" = rw ] || chmod -R a-w -- "$to" || fail "place $n"
  fi
  shift 4; n=$((n+1))
done`

// unprotect makes what was staged read-only writable for its owner: nonce,
// workspace, paths.
const unprotect = `nonce=$1; cd -P -- "$2" 2>/dev/null || { printf '%s gone\n' "$nonce" >&2; exit 125; }
shift 2; root=$PWD
for path in "$@"; do
  real=$(readlink -f -- "$path" && echo .) && real=${real%
.} || continue
  case $real in "$root"/*) [ -d "$real" ] && chmod -R u+w -- "$real";; esac
done
exit 0`
