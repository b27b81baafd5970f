package io.weir.spring

import org.hamcrest.Matchers.matchesRegex
import org.junit.jupiter.api.Test
import org.springframework.beans.factory.annotation.Autowired
import org.springframework.http.MediaType
import org.springframework.test.web.servlet.MockMvc
import org.springframework.test.web.servlet.get
import org.springframework.test.web.servlet.request.MockMvcRequestBuilders.asyncDispatch
import org.springframework.test.web.servlet.result.MockMvcResultMatchers.status

class MvcTest(@Autowired private val mvc: MockMvc) : InApp() {
    @Test
    fun `a refusal is a 429 with the standard headers`() {
        val user = someone()
        repeat(3) { mvc.get("/ocr?user=$user").andExpect { status { isOk() } } }
        mvc.get("/ocr?user=$user").andExpect {
            status { isTooManyRequests() }
            header {
                string("RateLimit-Policy", "\"ocr/hour\";q=3;w=3600")
                string("RateLimit", matchesRegex("\"ocr/hour\";r=0;t=\\d+"))
                string("Retry-After", matchesRegex("\\d+"))
            }
            content { contentTypeCompatibleWith("application/problem+json") }
            jsonPath("$.status") { value(429) }
            jsonPath("$.type") { value("https://iana.org/assignments/http-problem-types#quota-exceeded") }
            jsonPath("$['violated-policies']") { value("ocr/hour") }
            jsonPath("$.detail") { value(matchesRegex("Too many requests; try again in \\d+ s")) }
        }
    }

    @Test
    fun `a client that wants HTML is refused alike`() {
        mvc.get("/teapot?user=x") { accept = MediaType.TEXT_HTML }.andExpect { status { isIAmATeapot() } }
    }

    @Test
    fun `the rule's own status is answered, and no Retry-After where no wait helps`() {
        mvc.get("/teapot?user=x").andExpect {
            status { isIAmATeapot() }
            header {
                exists("RateLimit")
                doesNotExist("Retry-After")
            }
        }
    }

    @Test
    fun `the request of the thread is #request`() {
        val user = someone()
        mvc.get("/header") { header("X-User", user) }.andExpect { status { isOk() } }
        mvc.get("/header") { header("X-User", user) }.andExpect { status { isTooManyRequests() } }
        mvc.get("/header") { header("X-User", someone()) }.andExpect { status { isOk() } }
    }

    @Test
    fun `a refused Mono or suspend function is a 429, too`() {
        for (path in listOf("/mono", "/suspend")) {
            val user = someone()
            for (expected in listOf(200, 429)) {
                val begun = mvc.get("$path?user=$user").andExpect { request { asyncStarted() } }.andReturn()
                mvc.perform(asyncDispatch(begun)).andExpect(status().`is`(expected))
            }
        }
    }
}
