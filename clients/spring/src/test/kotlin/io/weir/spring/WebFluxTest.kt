package io.weir.spring

import org.junit.jupiter.api.Test
import org.springframework.beans.factory.annotation.Autowired
import org.springframework.boot.test.context.SpringBootTest
import org.springframework.context.ApplicationContext
import org.springframework.test.context.DynamicPropertyRegistry
import org.springframework.test.context.DynamicPropertySource
import org.springframework.test.web.reactive.server.WebTestClient

/** The same application, on WebFlux. */
@SpringBootTest(properties = ["weir.deadline=10s", "spring.main.web-application-type=reactive"])
class WebFluxTest(@Autowired context: ApplicationContext) {
    private val client = WebTestClient.bindToApplicationContext(context).build()

    @Test
    fun `a refusal is a 429 with the standard headers`() {
        for (path in listOf("/mono", "/suspend")) {
            val user = InApp.someone()
            client.get().uri("$path?user=$user").exchange().expectStatus().isOk
            client.get().uri("$path?user=$user").exchange().expectStatus().isEqualTo(429)
                .expectHeader().valueEquals("RateLimit-Policy", "\"one/day\";q=1;w=86400")
                .expectHeader().exists("Retry-After")
                .expectHeader().contentType("application/problem+json")
        }
    }

    private companion object {
        @DynamicPropertySource
        @JvmStatic
        fun weir(registry: DynamicPropertyRegistry) = registry.add("weir.url") { Weir.shared.url }
    }
}
