import java.util.*;
import java.util.concurrent.*;
import java.util.concurrent.atomic.*;
import java.util.concurrent.locks.*;
import java.util.stream.*;

/* Monitors, locks, pools and garbage collection, all built on the virtual machine's own mutexes and
 * condition variables. Every line is the same in every run. */
public class Contention {
    static final int THREADS = 8;
    static int counted, turn;
    static long checksum;

    interface Body { void run(int number) throws Exception; }

    static void together(Body body) throws Exception {
        Thread[] threads = new Thread[THREADS];
        AtomicReference<Throwable> failure = new AtomicReference<>();
        for (int i = 0; i < THREADS; i++) {
            int number = i;
            threads[i] = new Thread(() -> {
                try { body.run(number); } catch (Throwable t) { failure.set(t); }
            });
            threads[i].start();
        }
        for (Thread thread : threads) thread.join();
        if (failure.get() != null) throw new Exception(failure.get());
    }

    static void monitors() throws Exception {
        counted = turn = 0;
        Object monitor = new Object();
        together(number -> {
            for (int i = 0; i < 20000; i++) synchronized (monitor) { counted++; }
        });
        together(number -> {
            for (int i = 0; i < 300; i++) synchronized (monitor) {
                while (turn % THREADS != number) monitor.wait();
                turn++;
                monitor.notifyAll();
            }
        });
        System.out.println("monitors " + counted + " " + turn);
    }

    static void locks() throws Exception {
        counted = turn = 0;
        ReentrantLock lock = new ReentrantLock(), fair = new ReentrantLock(true);
        Condition[] next = new Condition[THREADS];
        for (int i = 0; i < THREADS; i++) next[i] = fair.newCondition();
        together(number -> {
            for (int i = 0; i < 20000; i++) {
                lock.lock();
                try { counted++; } finally { lock.unlock(); }
            }
            for (int i = 0; i < 300; i++) {
                fair.lock();
                try {
                    while (turn % THREADS != number) next[number].await(50, TimeUnit.MILLISECONDS);
                    turn++;
                    next[turn % THREADS].signal();
                } finally { fair.unlock(); }
            }
        });
        ReadWriteLock shared = new ReentrantReadWriteLock();
        Map<Integer, Integer> map = new HashMap<>();
        together(number -> {
            for (int i = 0; i < 3000; i++) {
                Lock side = i % 10 == 0 ? shared.writeLock() : shared.readLock();
                side.lock();
                try { if (i % 10 == 0) map.merge(i, 1, Integer::sum); else map.get(i); } finally { side.unlock(); }
            }
        });
        System.out.println("locks " + counted + " " + turn + " " + map.values().stream().mapToInt(v -> v).sum());
    }

    static class Fibonacci extends RecursiveTask<Long> {
        final int n;
        Fibonacci(int n) { this.n = n; }
        @Override protected Long compute() {
            if (n < 2) return (long) n;
            Fibonacci other = new Fibonacci(n - 1);
            other.fork();
            return new Fibonacci(n - 2).compute() + other.join();
        }
    }

    static void pools() throws Exception {
        long sum = IntStream.range(0, 400000).parallel().mapToLong(i -> Integer.bitCount(i) * (long) i % 1009).sum();
        int[] numbers = new Random(7).ints(200000).toArray();
        Arrays.parallelSort(numbers);
        ForkJoinPool pool = new ForkJoinPool(THREADS);
        long fibonacci = pool.invoke(new Fibonacci(21));
        pool.shutdown();
        BlockingQueue<Integer> queue = new ArrayBlockingQueue<>(5);
        AtomicLong taken = new AtomicLong();
        together(number -> {
            for (int i = 0; i < 2000; i++)
                if (number % 2 == 0) queue.put(i); else taken.addAndGet(queue.take());
        });
        System.out.println("pools " + sum + " " + Arrays.hashCode(numbers) + " " + fibonacci + " " + taken);
    }

    static void churn() throws Exception {
        AtomicInteger ended = new AtomicInteger();
        together(number -> {
            for (int i = 0; i < 60; i++) {
                Thread thread = new Thread(ended::incrementAndGet);
                thread.start();
                thread.join();
            }
        });
        System.out.println("churn " + ended);
    }

    static void garbage() throws Exception {
        checksum = 0;
        together(number -> {
            Map<Integer, byte[]> kept = new LinkedHashMap<>();
            long sum = 0;
            for (int i = 0; i < 12000; i++) {
                byte[] bytes = new byte[1000 + i % 500];
                bytes[i % 1000] = (byte) i;
                kept.put(i % 400, bytes);
                if (i % 3 == 0) sum += kept.get(i % 400)[i % 1000];
                if (i % 4000 == 0) System.gc();
            }
            synchronized (Contention.class) { checksum += sum; }
        });
        // The virtual machine joins collections that threads ask for at the same time.
        long collections = java.lang.management.ManagementFactory.getGarbageCollectorMXBeans().stream()
            .mapToLong(java.lang.management.GarbageCollectorMXBean::getCollectionCount).sum();
        System.out.println("garbage " + checksum + " " + (collections > 0));
    }

    /* Runs one round, or rounds for as many seconds as the argument says. */
    public static void main(String[] arguments) throws Exception {
        long seconds = arguments.length > 0 ? Long.parseLong(arguments[0]) : 0;
        long end = System.nanoTime() + seconds * 1_000_000_000L;
        do {
            monitors();
            locks();
            pools();
            churn();
            garbage();
        } while (System.nanoTime() < end);
    }
}
