package io.weir.spring

import org.springframework.boot.test.autoconfigure.web.servlet.AutoConfigureMockMvc
import org.springframework.boot.test.context.SpringBootTest
import org.springframework.test.context.DynamicPropertyRegistry
import org.springframework.test.context.DynamicPropertySource
import java.util.UUID

/** A test in the application, whose context all of these share, and its weir. */
@SpringBootTest(properties = ["weir.deadline=10s"])
@AutoConfigureMockMvc
abstract class InApp {
    companion object {
        /** Everybody counts for himself. */
        fun someone() = UUID.randomUUID().toString()

        @DynamicPropertySource
        @JvmStatic
        fun weir(registry: DynamicPropertyRegistry) = registry.add("weir.url") { Weir.shared.url }
    }
}

fun refused(call: () -> Any?): OperationTooFrequentException =
    org.junit.jupiter.api.assertThrows<OperationTooFrequentException> { call() }
