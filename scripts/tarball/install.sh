#!/bin/sh
# Installs unconvoy from its unpacked tarball, or removes it.
#
#   ./install.sh [--prefix DIR] [--uninstall] [--help]
#
# A list of installed files, PREFIX/lib/unconvoy/installed.txt, serves the removal: `d` and a folder
# that the installation made, or `f` and a file.
set -eu
LC_ALL=C
export LC_ALL

say() {
	echo "install.sh: $*" >&2
}

fail() {
	say "$@"
	exit 1
}

wrong_usage() {
	say "$*; see install.sh --help"
	exit 2
}

usage() {
	cat <<-'END'
		Install unconvoy, or remove it.

		Usage: ./install.sh [--prefix DIR] [--uninstall]

		  --prefix DIR   folder to install into [default: /usr/local]
		  --uninstall    remove what was installed into the prefix
		  --help         print this help

		Needs x86-64 Linux with glibc 2.36 or later, and root only for a prefix that needs it:
		./install.sh --prefix "$HOME/.local"
	END
}

# Prints the one path of a folder, without links, `.`, `..` and `//`. Its last parts may be missing.
resolved() {
	if [ -d "$1" ]; then
		# bash keeps the two slashes of //usr.
		{ (CDPATH='' cd -P "$1" 2>/dev/null && pwd) || printf '%s\n' "$1"; } | tr -s /
	else
		parent=$(resolved "$(dirname "$1")")
		case $(basename "$1") in
		.) printf '%s\n' "$parent" ;;
		..) dirname "$parent" ;;
		*) printf '%s\n' "${parent%/}/$(basename "$1")" ;;
		esac
	fi
}

prefix=/usr/local
action=install_files
while [ $# != 0 ]; do
	case $1 in
	--prefix)
		[ $# -ge 2 ] || wrong_usage "--prefix needs a folder"
		prefix=$2
		shift
		;;
	--prefix=*) prefix=${1#--prefix=} ;;
	--uninstall) action=remove_files ;;
	-h | --help)
		usage
		exit
		;;
	*) wrong_usage "unknown option $1" ;;
	esac
	shift
done

[ -n "$prefix" ] || wrong_usage "--prefix needs a folder"
case $prefix in
/*) ;;
*) prefix=$PWD/$prefix ;;
esac
prefix=$(resolved "$prefix")
# LD_PRELOAD separates its entries by these; the others would break unconvoy.pc.
case $prefix in
*[!A-Za-z0-9/._+@%,~-]*)
	wrong_usage "the prefix '$prefix' has a character that LD_PRELOAD or pkg-config cannot take"
	;;
esac

here=$(CDPATH='' cd "$(dirname "$0")" && pwd)
files=$here/files
list=$prefix/lib/unconvoy/installed.txt
scratch=$(mktemp -d)
trap clean_up EXIT
trap 'exit 130' HUP INT TERM # dash runs no EXIT trap on a signal

# Removes what an unfinished installation has made, and keeps an earlier one.
clean_up() {
	[ ! -f "$scratch/staged" ] || remove_listed "$scratch/staged" || :
	rm -rf "$scratch"
}

# Removes the files of a list, then the folders that are empty. Fails if a file is left.
remove_listed() {
	left=0
	while read -r kind path; do
		[ "$kind" = d ] || rm -f "$path" 2>/dev/null || left=1
	done <"$1"
	sed -n 's/^d //p' "$1" | sort -r | while read -r path; do
		rmdir "$path" 2>/dev/null || :
	done
	return "$left"
}

# Prints the prefix that the list was written for. A list names itself.
listed_prefix() {
	sed -n 's#^f \(/.*\)/lib/unconvoy/installed\.txt$#\1#p' "$list"
}

# Fails if the list came here from another folder, without a link in that one's place. Its paths may
# now be those of another installation, and the same paths below this prefix somebody else's.
is_own_list() {
	[ "$(listed_prefix)" ] && [ "$(resolved "$(listed_prefix)")" -ef "$prefix" ]
}

# Prints the listed files that are missing.
missing_files() {
	sed -n 's/^f //p' "$1" | while read -r path; do
		[ -e "$path" ] || [ -L "$path" ] || printf '%s\n' "$path"
	done
}

remove_files() {
	[ -f "$list" ] || fail "nothing to remove: no $list"
	[ "$(listed_prefix)" ] || fail "nothing removed: $list does not name itself"
	is_own_list || fail "nothing removed: $list lists files below '$(listed_prefix)';" \
		"move them back there, or make that a link to $prefix"
	cp "$list" "$scratch/old"
	missing_files "$scratch/old" >"$scratch/missing"
	remove_listed "$scratch/old" || fail "cannot remove all files below $prefix: run as its owner"
	[ ! -s "$scratch/missing" ] || fail "removed unconvoy from $prefix, but" \
		"$(wc -l <"$scratch/missing") of its files were missing: $(head -1 "$scratch/missing")"
	echo "removed unconvoy from $prefix"
}

# Prints the missing folders from `path` upwards.
missing_folders() {
	path=$1
	while [ ! -d "$path" ]; do
		echo "d $path"
		path=$(dirname "$path")
	done
}

# Prints the folders that this installation makes.
new_folders() {
	(cd "$files" && find . -type d) | sed "s#^\.#$prefix#" | while read -r path; do
		missing_folders "$path"
	done
}

# Prints the list of an installation. Folders of an earlier installation stay in the list.
new_list() {
	grep -s '^d ' "$scratch/old" || :
	cat "$scratch/staged"
	(cd "$files" && find . -type f) | sed "s#^\.#f $prefix#"
	echo "f $list"
}

# Copies one file, with its mode, beside its final path.
stage() {
	[ ! -d "$2" ] || { echo "$2 is a directory" >&2 && return 1; }
	mkdir -p "$(dirname "$2")" && rm -f "$2.new" || return
	echo "f $2.new" >>"$scratch/staged"
	cp "$1" "$2.new" && chmod "$3" "$2.new"
}

stage_all() {
	stage "$scratch/new" "$list" 644 || return
	while read -r kind path; do
		from=$files${path#"$prefix"}
		case $kind$path in
		d* | "f$list") continue ;;
		f*/pkgconfig/unconvoy.pc)
			sed "s#^prefix=.*#prefix=$prefix#" "$from" >"$scratch/pc" || return
			from=$scratch/pc
			;;
		esac
		stage "$from" "$path" "$(mode_of "$path")" || return
	done <"$scratch/new"
}

# Renames the staged files, the list first. A library stays intact for programs that have loaded it.
rename_all() {
	trap '' HUP INT TERM # no mixture of two versions
	while read -r kind path; do
		[ "$kind" = d ] || mv -f "$path" "${path%.new}" || return
	done <"$scratch/staged"
	rm "$scratch/staged"
}

# A private umask must not hide the files from other users. The mode is read, because nothing is
# executable (-x) where the tarball was unpacked on a file system mounted with noexec.
mode_of() {
	if [ -n "$(find "$files${1#"$prefix"}" -prune -perm -100)" ]; then echo 755; else echo 644; fi
}

# Prints the one path of each file in a list.
resolved_files() {
	sed -n 's/^f //p' "$1" | while read -r path; do
		folder=$(resolved "$(dirname "$path")")
		printf '%s\n' "${folder%/}/$(basename "$path")"
	done
}

install_files() {
	[ -d "$files" ] ||
		fail "cannot install: there is no $files; run install.sh in the unpacked tarball"
	libc=$(getconf GNU_LIBC_VERSION 2>/dev/null) || libc="another C library"
	minor=$(echo "$libc" | sed -n 's/^glibc 2\.\([0-9]*\).*/\1/p')
	[ "$(uname -m)" = x86_64 ] && [ "${minor:-0}" -ge 36 ] ||
		fail "cannot install: this is $(uname -m) with $libc, and unconvoy needs x86-64 Linux" \
			"with glibc 2.36 or later (Debian 12, Ubuntu 24.04)"
	command -v find >/dev/null || fail "cannot install: find is missing (package findutils)"
	umask 022
	[ ! -f "$list" ] || ! is_own_list || cp "$list" "$scratch/old"
	new_folders | sort -u >"$scratch/staged"
	new_list | sort -u >"$scratch/new"
	if ! { stage_all && rename_all; } 2>"$scratch/error"; then
		fail "cannot install into $prefix ($(head -1 "$scratch/error")):" \
			"run as root, or choose a folder with --prefix"
	fi
	# Files of the earlier version that this one lacks; none if its list came from another folder. A
	# link may give one file different names in the two lists.
	if [ -f "$scratch/old" ]; then
		resolved_files "$scratch/new" >"$scratch/kept"
		resolved_files "$scratch/old" | grep -vFxf "$scratch/kept" |
			sed 's/^/f /' >"$scratch/gone"
		remove_listed "$scratch/gone" || fail "cannot remove all files of the earlier version"
	fi
	echo "installed unconvoy below $prefix; try $prefix/bin/unconvoy doctor"
}

"$action"
