package io.weir.spring

import org.hamcrest.Matchers.matchesRegex
import org.junit.jupiter.api.Test
import org.springframework.beans.factory.annotation.Autowired
import org.springframework.boot.test.autoconfigure.web.servlet.AutoConfigureMockMvc
import org.springframework.boot.test.context.SpringBootTest
import org.springframework.test.context.DynamicPropertyRegistry
import org.springframework.test.context.DynamicPropertySource
import org.springframework.test.web.servlet.MockMvc
import org.springframework.test.web.servlet.get

@SpringBootTest
@AutoConfigureMockMvc
class MvcTest(@Autowired private val mvc: MockMvc) {
    @Test
    fun `a refusal is a 429 with the standard headers`() {
        repeat(3) { mvc.get("/ocr?user=mvc").andExpect { status { isOk() } } }
        mvc.get("/ocr?user=mvc").andExpect {
            status { isTooManyRequests() }
            header {
                string("RateLimit-Policy", "\"hour\";q=3;w=3600")
                string("RateLimit", matchesRegex("\"hour\";r=0;t=\\d+"))
                string("Retry-After", matchesRegex("\\d+"))
            }
            content { contentTypeCompatibleWith("application/problem+json") }
            jsonPath("$.status") { value(429) }
            jsonPath("$.detail") { value(matchesRegex("Too many requests; try again in \\d+ s")) }
        }
    }

    companion object {
        @DynamicPropertySource
        @JvmStatic
        fun weir(registry: DynamicPropertyRegistry) = registry.add("weir.url") { Weir.shared.url }
    }
}
