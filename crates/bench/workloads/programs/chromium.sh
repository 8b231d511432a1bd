#!/bin/sh
# Headless Chromium: a page exchanges messages with THREADS workers, each a thread, and draws the
# replies.
. "$(dirname "$0")/../program.sh"

cat >"$dir/page.html" <<EOF
<!doctype html><title>jobs</title><ul id="list"></ul>
<script>
const THREADS = $threads, SECONDS = $seconds, WARM_UP = 1;
const source = "onmessage = e => { let s = e.data.seed;" +
	" const words = e.data.words.map(w => { for (let i = 0; i < 200; i++)" +
	" s = (Math.imul(s, 69069) + 12345) >>> 0; return w + (s % 1000); });" +
	" postMessage({ seed: s, words }); };";
const url = URL.createObjectURL(new Blob([source], { type: "text/javascript" }));
const list = document.getElementById("list");
const words = Array.from({ length: 100 }, (_, i) => "word" + i);
let done = 0, start = 0, over = false;
for (let t = 0; t < THREADS; t++) {
	const line = list.appendChild(document.createElement("li")), worker = new Worker(url);
	worker.onerror = e => console.log("failed " + e.message);
	worker.onmessage = e => {
		done++;
		if (done % 16 == 0) {
			line.textContent = e.data.words.slice(0, 10).join(" ");
			line.getBoundingClientRect();
		}
		if (!over) worker.postMessage({ seed: e.data.seed, words });
	};
	// Two messages in flight to each worker.
	worker.postMessage({ seed: t, words });
	worker.postMessage({ seed: t + THREADS, words });
}
setTimeout(() => { done = 0; start = performance.now(); }, WARM_UP * 1000);
setTimeout(() => {
	over = true;
	console.log("rate " + done / ((performance.now() - start) / 1000) + " messages/s");
}, (WARM_UP + SECONDS) * 1000);
</script>
EOF
# Debian's wrapper script would use settings from the environment.
start /usr/lib/chromium/chromium --headless --no-sandbox --disable-gpu --no-first-run \
	--disable-background-networking --disable-component-update --disable-extensions \
	--disable-dev-shm-usage --enable-logging=stderr --log-level=0 \
	--remote-debugging-port=0 --user-data-dir="$dir/profile" "file://$dir/page.html"
await grep -q 'CONSOLE.*"rate ' "$dir/log"
stop
sed -n 's/.*CONSOLE.*"\(rate [0-9.]* messages\/s\)".*/\1/p' "$dir/log"
