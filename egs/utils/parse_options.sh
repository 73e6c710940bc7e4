# Sets shell variables from the command line: --num-passes 5 or --num-passes=5 sets num_passes (it must exist already).
while [ $# -gt 0 ]; do
  case "$1" in
    --help) sed -n "s/^# usage: /usage: /p" "${0##*/}"; exit 0 ;;  # a recipe is in its folder by now
    --*=*) name=${1%%=*}; value=${1#*=}; shift ;;
    --*) name=$1; [ $# -ge 2 ] || { echo "$0: option $1 needs a value" >&2; exit 1; }; value=$2; shift 2 ;;
    *) echo "$0: unexpected argument '$1' (see --help)" >&2; exit 1 ;;
  esac
  name=${name#--}; name=${name//-/_}
  if ! [[ $name =~ ^[a-z_]+$ ]] || [ -z "${!name+set}" ]; then
    echo "$0: unknown option --${name//_/-} (see --help)" >&2; exit 1
  fi
  printf -v "$name" '%s' "$value"
done
