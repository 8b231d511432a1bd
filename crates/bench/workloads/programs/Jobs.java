import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ArrayBlockingQueue;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.concurrent.atomic.LongAdder;

/**
 * Threads that pass jobs through a bounded queue and count words in a synchronized map. All their
 * waits end in a pthread mutex and a condition variable of the virtual machine, as do those of its
 * compiler and garbage collector.
 *
 * Arguments: number of threads, half of which (rounded up) are producers, and seconds.
 */
public final class Jobs {
    private static final int WORDS = 64;

    public static void main(String[] arguments) throws Exception {
        int threads = Integer.parseInt(arguments[0]);
        double seconds = Double.parseDouble(arguments[1]);
        var queue = new ArrayBlockingQueue<int[]>(32);
        var counts = new HashMap<Integer, Long>();
        var over = new AtomicBoolean();
        var done = new LongAdder();
        List<Thread> producers = new ArrayList<>(), consumers = new ArrayList<>();
        for (int i = 0; i < Math.max(2, threads); i++) {
            int seed = i;
            if (i % 2 == 0) {
                producers.add(new Thread(() -> produce(queue, over, seed)));
            } else {
                consumers.add(new Thread(() -> consume(queue, counts, done)));
            }
        }
        producers.forEach(Thread::start);
        consumers.forEach(Thread::start);
        Thread.sleep(1000); // for the compilation of the hot methods
        long before = done.sum(), start = System.nanoTime();
        Thread.sleep((long) (seconds * 1000));
        long after = done.sum(), end = System.nanoTime();
        over.set(true);
        for (Thread producer : producers) {
            producer.join();
        }
        for (Thread consumer : consumers) {
            queue.put(new int[0]);
        }
        for (Thread consumer : consumers) {
            consumer.join();
        }
        long counted = counts.values().stream().mapToLong(Long::longValue).sum();
        if (counted != done.sum() * WORDS) {
            System.err.println(counted + " words of " + done.sum() + " jobs");
            System.exit(1);
        }
        System.out.println("rate " + (after - before) / ((end - start) / 1e9) + " jobs/s");
    }

    private static void produce(ArrayBlockingQueue<int[]> queue, AtomicBoolean over, int seed) {
        try {
            int word = seed + 1;
            while (!over.get()) {
                int[] job = new int[WORDS];
                for (int i = 0; i < WORDS; i++) {
                    word = word * 69069 + 12345;
                    job[i] = word >>> 24;
                }
                queue.put(job);
            }
        } catch (InterruptedException impossible) {
            throw new AssertionError(impossible);
        }
    }

    private static void consume(ArrayBlockingQueue<int[]> queue, Map<Integer, Long> counts, LongAdder done) {
        try {
            for (int[] job = queue.take(); job.length > 0; job = queue.take()) {
                synchronized (counts) {
                    for (int word : job) {
                        counts.merge(word, 1L, Long::sum);
                    }
                }
                done.increment();
            }
        } catch (InterruptedException impossible) {
            throw new AssertionError(impossible);
        }
    }
}
