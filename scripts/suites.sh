# Fetches packages of other Debian suites and unpacks them, with a private apt configuration.
# Sourced by scripts that have set `to`, the absolute path of the directory for what they unpack,
# and perhaps `without_apt`, what to do on other systems.
# shellcheck shell=sh

fail() {
	echo "setup: $1" >&2
	exit 1
}

command -v apt-get >/dev/null || fail "apt-get is missing${without_apt:+; $without_apt}"
keys=/usr/share/keyrings/debian-archive-keyring.gpg
[ -s "$keys" ] || fail "$keys is missing; run apt-get install debian-archive-keyring"

# The machine's Debian mirror, from either format of apt's lists of sources.
mirror=$(cat /etc/apt/sources.list.d/*.sources 2>/dev/null |
	sed -n 's|^URIs: *\(https\?://[^ ]*/debian\)/* *$|\1|p' | head -n 1)
[ -n "$mirror" ] || mirror=$(cat /etc/apt/sources.list /etc/apt/sources.list.d/*.list 2>/dev/null |
	sed -n 's|^deb  *\(\[[^]]*\]  *\)\{0,1\}\(https\{0,1\}://[^ ]*/debian\)/* .*|\2|p' | head -n 1)
[ -n "$mirror" ] || mirror=http://deb.debian.org/debian

work=$(mktemp -d "$to/fetch.XXXXXX")
trap 'rm -rf "$work"' EXIT
trap 'exit 130' HUP INT TERM # dash runs no EXIT trap on a signal

# Runs apt for one suite with its own lists and cache. apt's sandbox user cannot write here.
apt() {
	suite=$1
	shift
	mkdir -p "$work/$suite/lists/partial" "$work/$suite/cache/archives/partial"
	printf 'deb [signed-by=%s] %s %s main\n' "$keys" "$mirror" "$suite" >"$work/$suite/sources.list"
	"$@" -o Dir::State::lists="$work/$suite/lists" -o Dir::Cache="$work/$suite/cache" \
		-o Dir::Etc::sourcelist="$work/$suite/sources.list" -o Dir::Etc::sourceparts=- \
		-o Dir::State::status=/dev/null -o APT::Architecture=amd64 \
		-o APT::Architectures=amd64 -o APT::Sandbox::User= \
		-o Acquire::Languages=none -o Acquire::Retries=2
}

# The cause of a failure is apt's first message.
why() {
	sed -n 's/^[EW]: //p' "$work/log" | head -n 1
}

lists() {
	echo "setup: looking for $2 in $1" >&2
	apt "$1" apt-get -qq -o APT::Update::Error-Mode=any update >"$work/log" 2>&1 ||
		fail "cannot fetch the list of $1 from $mirror ($(why)); check the network"
}

fetch() {
	suite=$1
	shift
	(cd "$work/$suite" && apt "$suite" apt-get -qq download "$@" >"$work/log" 2>&1) ||
		fail "cannot fetch $* of $suite from $mirror ($(why))"
}

unpack() {
	mkdir -p "$2"
	for package in "$work/$1"/*.deb; do
		dpkg-deb -x "$package" "$2" ||
			fail "cannot unpack $(basename "$package"); check the free space in $to"
	done
	rm -f "$work/$1"/*.deb
}
