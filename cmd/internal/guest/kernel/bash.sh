# The resident part of the Bash kernel; bash.go is the other half and says how
# the two talk. It is sourced by `bash -c` and then driven by this loop, which
# stands on the first line so that a cell's own lines count from 1:
#
#   { while :; do while STATUS=$?; CLEAR TRAPS; __cubby_next; do eval "$__cubby_code"; done; done; } 200>&- ...
#
# The braces close our descriptors 200 to 205 for the code and its children; bash
# keeps copies of them, close-on-exec, at 10 to 15, and that is where we use them:
# 10 the request, 11 the saved state, 12 and 13 orders and answers, 14 and 15 the
# real stdout and stderr. Our own 1 and 2 are /dev/null, so that no trace or trap
# of a cell that is still in force is seen while we tidy up.
#
# A shell that must end (exit, set -e, ${x:?}, SIGINT, at any depth) does so by an
# EXIT trap, which writes its state down and replaces the process by a fresh shell
# that reads it: same process id, directory, umask, descriptors and children.
# Kept: variables with their attributes, functions, aliases, and the positional
# parameters unless a function was running. Not kept: the job table (`wait` and
# `jobs` do not know older jobs, which run on), `pushd`'s stack, the hash table,
# and traps. A local variable of a function that ended the shell becomes global if
# it hid none.

__cubby_id='' __cubby_trap_exit='' __cubby_status=0
__cubby_setup='' __cubby_teardown='' __cubby_code='' __cubby_in=/dev/null

# A cell may say what runs at its end, as a script may: that trap is kept here,
# because the real EXIT trap is ours. Everything else goes to the builtin.
trap() {
  if ((BASH_SUBSHELL > 0)) || (($# == 0)) || [[ $1 == -[pl]* ]]; then
    if ((BASH_SUBSHELL == 0)) && [[ $* == '' || $* == -p || $* =~ ^-p\ (EXIT|0)$ ]]; then
      [[ -z $__cubby_trap_exit ]] || builtin printf 'trap -- %q EXIT\n' "$__cubby_trap_exit"
      [[ $* == -p\ * ]] || builtin trap -p {1..64} DEBUG ERR RETURN 2>/dev/null | command grep -v __cubby
      builtin return 0
    fi
    builtin trap "$@"
    builtin return
  fi
  [[ $1 != -- ]] || builtin shift
  builtin local __cubby_action=- __cubby_sig __cubby_rc=0
  if (($# > 1)); then
    __cubby_action=$1
    builtin shift
  fi
  for __cubby_sig; do
    case ${__cubby_sig^^} in
    0 | EXIT | SIGEXIT)
      __cubby_trap_exit=$__cubby_action
      [[ $__cubby_action != - ]] || __cubby_trap_exit=''
      ;;
    2 | INT | SIGINT)
      if [[ $__cubby_action == - ]]; then
        builtin trap '__cubby_interrupt' INT
      else
        builtin trap -- "$__cubby_action" INT
      fi
      ;;
    RETURN | DEBUG)
      # This function goes on and returns too, which is not what the code waits for.
      if [[ $__cubby_action == [-] || -z $__cubby_action ]]; then
        builtin trap -- "$__cubby_action" "$__cubby_sig"
      else
        builtin trap -- '[[ ${FUNCNAME[0]-} == trap ]] || { '"$__cubby_action"'
}' "$__cubby_sig"
      fi
      ;;
    *) builtin trap -- "$__cubby_action" "$__cubby_sig" || __cubby_rc=$? ;;
    esac
  done
  builtin return "$__cubby_rc"
}

# Bash 5.2 loses a signal that reaches a child of `x &` between its fork and its exec
# if the shell has an EXIT trap, as ours has: the child notes it and becomes x. So a
# child that is still the shell gets a moment first. A subshell stays one, and is
# waited for once.
__cubby_settled=' '
kill() {
  builtin local -
  builtin set +eux
  if [[ -n $! && ${1-} != -[0lL]* ]]; then
    builtin local IFS=$'\n' __cubby_pid __cubby_try __cubby_ours __cubby_its
    builtin mapfile -d '' -t __cubby_ours </proc/self/cmdline
    for __cubby_pid in $(builtin jobs -pr); do
      for ((__cubby_try = 0; __cubby_try < 20; __cubby_try++)); do
        [[ $__cubby_settled != *" $__cubby_pid "* ]] || builtin break
        { builtin mapfile -d '' -t __cubby_its </proc/"$__cubby_pid"/cmdline; } 2>/dev/null || builtin break
        [[ ${__cubby_its[*]} == "${__cubby_ours[*]}" ]] || builtin break
        command -p sleep 0.01
      done
      __cubby_settled+="$__cubby_pid "
    done
  fi
  builtin kill "$@"
}

__cubby_interrupt() { builtin exit 130; }

# Runs what the cell wanted to run at its end; in a subshell, so that an exit in
# there ends nothing else.
__cubby_run_exit_trap() {
  [[ -n $__cubby_trap_exit ]] || builtin return 0
  builtin local __cubby_t="$__cubby_trap_exit"
  __cubby_trap_exit=''
  (
    builtin trap - EXIT INT
    builtin eval "$__cubby_t"
  ) </dev/null >&"$1" 2>&"$2"
}

# Writes the whole state as commands that make it again, and may take it apart.
# $1 is 1 if a function was running.
__cubby_save() {
  builtin local __cubby_n
  while builtin read -r __cubby_n; do
    case $__cubby_n in
    __cubby_* | _ | BASH | BASHOPTS | BASHPID | BASH_ALIASES | BASH_ARG* | BASH_CMDS | BASH_COMMAND | \
      BASH_EXECUTION_STRING | BASH_LINENO | BASH_SOURCE | BASH_SUBSHELL | BASH_VERS* | BASH_XTRACEFD | \
      COMP_WORDBREAKS | DIRSTACK | EPOCH* | EUID | FUNCNAME | GROUPS | HISTCMD | LINENO | PIPESTATUS | PPID | \
      RANDOM | SHELLOPTS | SRANDOM | UID | POSIXLY_CORRECT) ;;
    *)
      # In a function, what a local variable hides comes to light once that is
      # unset; the last line about a name wins.
      while builtin declare -p "$__cubby_n" && (($1)) && builtin unset -v "$__cubby_n"; do :; done
      ;;
    esac
  done < <(builtin compgen -A variable)
  while builtin read -r __cubby_n; do
    case $__cubby_n in
    trap | __cubby_*) ;;
    kill) [[ $(builtin declare -f kill) == *__cubby_* ]] || builtin declare -f kill ;;
    *)
      builtin declare -f "$__cubby_n"
      builtin declare -pF "$__cubby_n"
      ;;
    esac
  done < <(builtin compgen -A function)
  builtin alias -p
}

# The EXIT trap: $1 is the status, the rest the positional parameters.
__cubby_exit() {
  # A child that is killed before it has become its program still has this trap.
  [[ $BASHPID == "$$" ]] || builtin return 0
  builtin trap '' INT
  builtin set +eux +o pipefail
  builtin trap - DEBUG ERR RETURN
  # At the top level the braces are undone by now, in a function they are not.
  builtin local __cubby_fd=10
  [[ -e /proc/self/fd/13 ]] || __cubby_fd=200
  builtin printf 'leave\n' >&$((__cubby_fd + 3))
  builtin local __cubby_st="$1"
  builtin shift
  __cubby_run_exit_trap $((__cubby_fd + 4)) $((__cubby_fd + 5))
  builtin eval "$__cubby_teardown" 2>/dev/null
  {
    __cubby_save "$((${#FUNCNAME[@]} > 1))"
    if ((${#FUNCNAME[@]} == 1 && $# > 0)); then
      builtin printf 'set --'
      builtin printf ' %q' "$@"
    fi
  } >&$((__cubby_fd + 1)) 2>/dev/null
  # A signal that is ignored now could never be trapped by the next shell.
  builtin trap : INT
  # A copy of a close-on-exec descriptor is close-on-exec too, except at 0 to 2.
  builtin exec -c "$__cubby_shell" --norc --noprofile -c "$BASH_EXECUTION_STRING" bash "$__cubby_shell" "$__cubby_dir" "$__cubby_st" \
    2>&$((__cubby_fd + 0)) 200>&2 2>&$((__cubby_fd + 1)) 201>&2 2>&$((__cubby_fd + 2)) 202>&2 \
    2>&$((__cubby_fd + 3)) 203>&2 2>&$((__cubby_fd + 4)) 204>&2 2>&$((__cubby_fd + 5)) 205>&2 \
    </dev/null >/dev/null 2>&1
}

# Ends the cell that ran, if one did, and waits for the next.
__cubby_next() {
  builtin trap '' INT
  if [[ -n $__cubby_id ]]; then
    __cubby_run_exit_trap 14 15
    builtin eval "$__cubby_options"
    builtin eval "$__cubby_teardown"
    builtin printf 'done %s %s\n' "$__cubby_id" "$__cubby_status" >&13
    __cubby_id='' __cubby_teardown=''
  fi
  builtin local __cubby_verb
  if ! TMOUT=0 IFS=' ' builtin read -r -u 12 __cubby_verb __cubby_id; then
    # bash.go is gone.
    builtin trap - EXIT
    builtin exit 0
  fi
  TMOUT=0 IFS='' builtin read -r -d '' -u 10 __cubby_setup
  TMOUT=0 IFS='' builtin read -r -d '' -u 10 __cubby_teardown
  TMOUT=0 IFS='' builtin read -r -d '' -u 10 __cubby_code
  builtin trap '__cubby_exit "$?" "$@"' EXIT
  builtin trap '__cubby_interrupt' INT
  builtin printf 'start %s\n' "$__cubby_id" >&13
  builtin eval "$__cubby_setup" 2>&15 || builtin eval '__cubby_code="(exit 1)"'
  builtin return 0
}

builtin shopt -s expand_aliases
__cubby_options=$(
  builtin set +o
  builtin shopt -p | while builtin read -r __cubby_n; do
    case $__cubby_n in *compat* | *login_shell* | *restricted*) ;; *) builtin echo "$__cubby_n" ;; esac
  done
)
__cubby_shell=$1 __cubby_dir=$2 __cubby_last=${3:-0}

# Ask for the state that an earlier shell in this process left, and make it again.
builtin printf 'hello\n' >&203
TMOUT=0 builtin read -r -u 202 __cubby_n
builtin set --
if [[ $__cubby_n == restore ]]; then
  IFS='' builtin read -r -d '' -u 201 __cubby_n
  builtin eval "$__cubby_n" >/dev/null 2>&1
fi
builtin unset -v __cubby_n
builtin printf 'ready %s\n' "$__cubby_last" >&203
