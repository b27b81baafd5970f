package io.weir.spring;

class Hidden {
    @Detect(eventId = "one", contentSpel = "#user")
    public String submit(String user) {
        return "done";
    }
}
