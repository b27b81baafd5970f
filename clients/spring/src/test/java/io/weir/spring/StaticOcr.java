package io.weir.spring;

/** Mistakes that only Java can make. */
public class StaticOcr {
    @Detect(eventId = "ocr", contentSpel = "#arg1")
    public static String submit(String user) {
        return "done";
    }
}
