package io.weir.spring

import jakarta.servlet.http.HttpServletRequest
import org.springframework.boot.autoconfigure.SpringBootApplication
import org.springframework.stereotype.Service
import org.springframework.web.bind.annotation.GetMapping
import org.springframework.web.bind.annotation.RequestParam
import org.springframework.web.bind.annotation.RestController

/** What users write. */
@SpringBootApplication
class App

class User(val id: String)

@Service
class Ocr {
    @Detect(eventId = "ocr", contentSpel = "#arg1")
    fun byPosition(userId: String, imageUrl: String) = "$imageUrl of $userId"

    @Detect(eventId = "ocr", contentSpel = "#user.id")
    fun byName(user: User) = "done"

    @Detect(eventId = "ocr", contentSpel = "#request.getHeader('X-User')")
    fun byHeader() = "done"

    @Detect(eventId = "ocr", contentSpel = "#request")
    fun ownRequest(request: String) = "done"
}

@RestController
class OcrController(private val ocr: Ocr) {
    @GetMapping("/ocr")
    fun ocr(@RequestParam user: String) = ocr.byPosition(user, "image")

    @GetMapping("/header")
    fun header(request: HttpServletRequest) = ocr.byHeader()

    @Detect(eventId = "teapot", contentSpel = "#user")
    @GetMapping("/teapot")
    fun teapot(@RequestParam user: String) = user
}
