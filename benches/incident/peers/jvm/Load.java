// As load.py, with the vendor's SDK for the JVM; each call is a future.
//
//     java -cp … Load.java URL RATE SECONDS            with the SDK's default settings

import com.amplitude.experiment.ExperimentUser;
import com.amplitude.experiment.RemoteEvaluationClient;
import com.amplitude.experiment.RemoteEvaluationConfig;
import java.util.concurrent.CompletableFuture;

class Load {
    static RemoteEvaluationClient client;

    static CompletableFuture<String> outcome() {
        return client.fetch(ExperimentUser.builder().userId("user").build())
                .thenApply(variants -> variants.isEmpty() ? "empty" : "ok")
                .exceptionally(error -> "error");
    }

    static CompletableFuture<Void> call(int number) {
        long start = System.currentTimeMillis(), began = System.nanoTime();
        return outcome().thenAccept(what -> System.out.printf(
                "{\"call\":%d,\"start\":%d,\"elapsed\":%.3f,\"outcome\":\"%s\"}%n",
                number, start, (System.nanoTime() - began) / 1e6, what));
    }

    public static void main(String[] arguments) throws Exception {
        double rate = Double.parseDouble(arguments[1]), seconds = Double.parseDouble(arguments[2]);
        client = new RemoteEvaluationClient("key", RemoteEvaluationConfig.builder().serverUrl(arguments[0]).build());
        for (int i = 0; i < 20; i++) {
            outcome().join();
        }
        System.out.println("ready");
        System.in.read();
        long begin = System.nanoTime();
        CompletableFuture<?>[] calls = new CompletableFuture<?>[(int) (rate * seconds)];
        for (int number = 0; number < calls.length; number++) {
            double wait = number / rate * 1e3 - (System.nanoTime() - begin) / 1e6;
            Thread.sleep((long) Math.max(0, wait));
            calls[number] = call(number);
        }
        CompletableFuture.allOf(calls).join();
        System.exit(0); // the SDK's threads would keep the process
    }
}
