/* Waits for a monitor that another thread holds for 10 ms, once a line has arrived. */
public class Waits {
    static final Object QUEUE = new Object();

    static void holdHere() throws Exception {
        synchronized (QUEUE) {
            Thread.sleep(10);
        }
    }

    static void waitHere() {
        synchronized (QUEUE) {
        }
    }

    public static void main(String[] arguments) throws Exception {
        System.in.read();
        for (int i = 0; i < 20; i++) {
            Thread holder = new Thread(() -> {
                try { holdHere(); } catch (Exception e) { throw new RuntimeException(e); }
            });
            holder.start();
            Thread.sleep(2);
            waitHere();
            holder.join();
        }
    }
}
