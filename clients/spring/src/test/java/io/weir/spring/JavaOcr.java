package io.weir.spring;

import java.util.List;
import java.util.concurrent.CompletableFuture;
import org.springframework.stereotype.Service;

/** The annotation in Java, which has no need of Kotlin. */
@Service
public class JavaOcr {
    @Detect(eventId = "ocr", contentSpel = "#userId", cost = "#images.size()")
    public String submit(String userId, List<String> images) {
        return "done";
    }

    @Detect(eventId = "ocr", contentSpel = "#arg1")
    @Detect(eventId = "one", contentSpel = "#arg2")
    public String both(String user, String image) {
        return "done";
    }

    @Detect(eventId = "one", contentSpel = "#user", refundOnException = true)
    public CompletableFuture<String> later(String user, CompletableFuture<String> work) {
        return work;
    }

    @Detect(eventId = "llm", contentSpel = "#user", costs = @Cost(unit = "tokens", amount = "#text.length()"))
    public String prompt(String user, String text) {
        return "done";
    }

    @Detect(
            eventId = "llm",
            contentSpel = "#user",
            cost = "0",
            costs = {@Cost(unit = "tokens", amount = "#tokens"), @Cost(unit = "images", amount = "1")},
            refundOnException = true)
    public CompletableFuture<String> promptLater(String user, long tokens, CompletableFuture<String> work) {
        return work;
    }
}
