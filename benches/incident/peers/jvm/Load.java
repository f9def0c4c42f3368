// As load.py, with the vendor's SDK for the JVM; each call is a future.
//
//     java -cp … Load.java URL RATE SECONDS [SETTING=VALUE ...]
//
// With a RATE such as `16x5` so many threads call so many times each. A client has five connections and
// no setting for more; then there are as many clients as it takes.

import com.amplitude.experiment.ExperimentUser;
import com.amplitude.experiment.RemoteEvaluationClient;
import com.amplitude.experiment.RemoteEvaluationConfig;
import java.util.Arrays;
import java.util.concurrent.CompletableFuture;

class Load {
    static final int CONNECTIONS = 5;
    static long onlySleep;
    static RemoteEvaluationClient[] clients = new RemoteEvaluationClient[1];

    static RemoteEvaluationClient client(String[] arguments) {
        RemoteEvaluationConfig.Builder config = RemoteEvaluationConfig.builder().serverUrl(arguments[0]);
        for (String setting : Arrays.asList(arguments).subList(3, arguments.length)) {
            String[] words = setting.split("=");
            switch (words[0]) {
                case "fetch_timeout_millis": config.fetchTimeoutMillis(Long.parseLong(words[1])); break;
                case "only_sleep": onlySleep = Long.parseLong(words[1]); break;
                case "fetch_retries": config.fetchRetries(Integer.parseInt(words[1])); break;
                default: throw new IllegalArgumentException("no such setting: " + words[0]);
            }
        }
        return new RemoteEvaluationClient("key", config.build());
    }

    static CompletableFuture<String> outcome(RemoteEvaluationClient client) {
        if (onlySleep > 0) {
            try {
                Thread.sleep(onlySleep);
            } catch (InterruptedException interrupted) {
                throw new IllegalStateException(interrupted);
            }
            return CompletableFuture.completedFuture("ok");
        }
        return client.fetch(ExperimentUser.builder().userId("user").build())
                .thenApply(variants -> variants.isEmpty() ? "empty" : "ok")
                .exceptionally(error -> "error");
    }

    static CompletableFuture<Void> call(RemoteEvaluationClient client, int number) {
        long start = System.currentTimeMillis(), began = System.nanoTime();
        // In one piece: the SDK writes lines of its own, and they came between those of printf.
        return outcome(client).thenAccept(what -> System.out.print(String.format(
                "{\"call\":%d,\"start\":%d,\"elapsed\":%.3f,\"outcome\":\"%s\"}%n",
                number, start, (System.nanoTime() - began) / 1e6, what)));
    }

    static void load(double rate, double seconds) throws InterruptedException {
        long begin = System.nanoTime();
        CompletableFuture<?>[] calls = new CompletableFuture<?>[(int) (rate * seconds)];
        for (int number = 0; number < calls.length; number++) {
            double wait = number / rate * 1e3 - (System.nanoTime() - begin) / 1e6;
            Thread.sleep((long) Math.max(0, wait));
            calls[number] = call(clients[0], number);
        }
        CompletableFuture.allOf(calls).join();
    }

    static void inTurns(int callers, int turns) throws InterruptedException {
        Thread[] threads = new Thread[callers];
        for (int i = 0; i < callers; i++) {
            int caller = i;
            threads[i] = new Thread(() -> {
                for (int turn = 0; turn < turns; turn++) {
                    call(clients[caller / CONNECTIONS], caller * turns + turn).join();
                }
            });
            threads[i].start();
        }
        for (Thread thread : threads) {
            thread.join();
        }
    }

    public static void main(String[] arguments) throws Exception {
        String[] rate = arguments[1].split("x");
        if (rate.length == 2) {
            clients = new RemoteEvaluationClient[(Integer.parseInt(rate[0]) + CONNECTIONS - 1) / CONNECTIONS];
        }
        Arrays.setAll(clients, i -> client(arguments));
        for (int i = 0; i < Math.max(20, clients.length) && onlySleep == 0; i++) {
            outcome(clients[i % clients.length]).join();
        }
        System.out.println("ready");
        if (System.in.read() < 0) {
            System.exit(0); // whoever started it is gone
        }
        if (rate.length == 2) {
            inTurns(Integer.parseInt(rate[0]), Integer.parseInt(rate[1]));
        } else {
            load(Double.parseDouble(arguments[1]), Double.parseDouble(arguments[2]));
        }
        System.exit(0); // the SDK's threads would keep the process
    }
}
