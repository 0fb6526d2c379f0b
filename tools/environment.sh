# Makes .venv in the repository's root, or reuses it. To be sourced: leaves $root and $python to the caller.
#
# .venv/installed.txt is written last and holds everything the installation depends on. If it is missing or
# differs (an interrupted install, a changed requirement, a moved repository), the installation is done again.
# Bash 3.2 and POSIX tools only, so that macOS works as well.

root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
venv="$root/.venv"
python="$venv/bin/python"
stamp="$venv/installed.txt"
needed="Python 3.11, 3.12 or 3.13"
remedy="PYTHON=/path/to/python3.12 bash tools/${0##*/}"

stop() {
  echo "$1" >&2
  exit 1
}

# Asks the interpreter itself: a name on PATH may be a pyenv shim that runs nothing. Prints nothing if it fails.
version_of() {
  "$1" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null || true
}

suits() {
  case "$1" in 3.11 | 3.12 | 3.13) return 0 ;; *) return 1 ;; esac
}

can_make_venv() {
  "$1" -c 'import ensurepip, venv' 2>/dev/null
}

# Sets $base to the interpreter that .venv is to be made from, or stops.
find_base() {
  local candidate version found="" without_venv=""
  local candidates=(python3.11 python3.12 python3.13 python3 python)
  [ -z "${PYTHON:-}" ] || candidates=("$PYTHON")
  for candidate in "${candidates[@]}"; do
    version="$(version_of "$candidate")"
    if ! suits "$version"; then
      found="$found${version:+${found:+, }$candidate ($version)}"
    elif ! can_make_venv "$candidate"; then
      without_venv="${without_venv:-$candidate ($version)}"
    else
      base="$candidate"
      return
    fi
  done
  if [ -n "$without_venv" ]; then
    stop "$without_venv cannot make virtual environments: install its venv package (on Debian and Ubuntu: apt install python3-venv), or name another $needed with $remedy"
  elif [ -n "${PYTHON:-}" ] && [ -z "$found" ]; then
    stop "PYTHON=$PYTHON does not run as Python: name $needed, as in $remedy"
  fi
  stop "selabel_tf needs $needed but found ${found:-no Python}: install one of them, or name one that is not on PATH with $remedy"
}

# What the installation depends on, verbatim; $1 is the version of the interpreter.
contents() {
  echo "Python $1 in $root"
  cat "$root/requirements.txt" "$root/pyproject.toml"
}

make_environment() {
  local version wanted="" base=""
  version="$(version_of "$python")"
  if [ -n "${PYTHON:-}" ]; then
    find_base
    wanted="$(version_of "$base")"
  fi

  if suits "$version" && [ "$version" = "${wanted:-$version}" ]; then
    [ -f "$stamp" ] && [ "$(cat "$stamp")" = "$(contents "$version")" ] && return
    # Only a whole .venv of this very place can be installed into: its programs carry their own path.
    if grep -qF -- "-m venv $venv" "$venv/pyvenv.cfg" && "$python" -m pip --version >/dev/null 2>&1; then
      install "$version"
      return
    fi
  fi

  [ -n "$base" ] || find_base
  wanted="$(version_of "$base")"
  if [ -e "$venv" ] || [ -L "$venv" ]; then
    if [ -z "$version" ]; then
      echo "Making .venv anew: the present one has no Python that runs."
    elif [ "$version" != "$wanted" ]; then
      echo "Making .venv anew with Python $wanted: the present one has Python $version."
    else
      echo "Making .venv anew: the present one is incomplete or was made in another folder."
    fi
    rm -rf "$venv"
  fi
  "$base" -m venv "$venv" || stop "$base (Python $wanted) could not make $venv: see above, or name another $needed with $remedy"
  install "$wanted"
}

install() {
  echo "Installing into .venv (about two minutes, once)"
  rm -f "$stamp"
  if ! "$python" -m pip install -qq --disable-pip-version-check --requirement "$root/requirements.txt" ||
    ! "$python" -m pip install -qq --disable-pip-version-check --no-deps --editable "$root"; then
    stop "Installing into .venv failed, for the reason above. Once that is mended, the same command goes on from here."
  fi
  contents "$1" >"$stamp"
}

make_environment
