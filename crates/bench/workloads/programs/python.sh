#!/bin/sh
# CPython: THREADS threads take jobs from one queue, compress without the interpreter's lock, and
# count.
. "$(dirname "$0")/../program.sh"

cat >"$dir/jobs.py" <<'EOF'
import queue, sys, threading, time, zlib
threads, seconds = int(sys.argv[1]), float(sys.argv[2])
text = b"".join(b"%d %d " % (i, i * i % 977) for i in range(500))
expected = zlib.crc32(zlib.compress(text, 1))
jobs, lock, done, wrong = queue.Queue(maxsize=2 * threads), threading.Lock(), 0, 0
def work():
    global done, wrong
    while (job := jobs.get()) is not None:
        right = zlib.crc32(zlib.compress(text, 1)) == expected
        with lock:
            done += 1
            wrong += not right
def hand_out():
    while not over:
        jobs.put(text)
    for _ in workers:
        jobs.put(None)
over, workers = False, [threading.Thread(target=work) for _ in range(threads)]
producer = threading.Thread(target=hand_out)
for thread in [producer, *workers]:
    thread.start()
time.sleep(0.5)
before, start = done, time.monotonic()
time.sleep(seconds)
after, end = done, time.monotonic()
over = True
for thread in [producer, *workers]:
    thread.join()
if wrong or jobs.qsize():
    sys.exit(f"{wrong} wrong results, {jobs.qsize()} jobs left")
print(f"rate {(after - before) / (end - start):.6g} jobs/s")
EOF
# The system's own Python, not a wrapper earlier in PATH.
measured /usr/bin/python3 -I "$dir/jobs.py" "$threads" "$seconds"
