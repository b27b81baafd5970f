package io.weir.spring

import io.weir.spring.InApp.Companion.someone
import org.junit.jupiter.api.Assertions.assertEquals
import org.junit.jupiter.api.Test
import org.springframework.aot.test.generate.TestGenerationContext
import org.springframework.boot.autoconfigure.ImportAutoConfiguration
import org.springframework.boot.test.util.TestPropertyValues
import org.springframework.context.ApplicationContextInitializer
import org.springframework.context.annotation.AnnotationConfigApplicationContext
import org.springframework.context.annotation.Import
import org.springframework.context.aot.ApplicationContextAotGenerator
import org.springframework.context.support.GenericApplicationContext
import org.springframework.core.test.tools.CompileWithForkedClassLoader
import org.springframework.core.test.tools.Compiled
import org.springframework.core.test.tools.TestCompiler
import org.springframework.scheduling.annotation.Async
import org.springframework.scheduling.annotation.EnableAsync

open class Ahead {
    @Detect(eventId = "one", contentSpel = "#user")
    open fun plain(user: String) = "done"

    @Async
    @Detect(eventId = "one", contentSpel = "#user")
    open fun async(user: String) = Unit
}

@EnableAsync
@ImportAutoConfiguration(WeirAutoConfiguration::class)
@Import(Ahead::class)
class AheadApp

/** What an application is made of when its beans were worked out while it was built, as for a native image; here on the JVM. */
class AheadOfTimeTest {
    @Test
    @CompileWithForkedClassLoader
    fun `an application that was made ahead of time refuses`() {
        val generated = TestGenerationContext()
        val built = AnnotationConfigApplicationContext().apply { register(AheadApp::class.java) }
        ApplicationContextAotGenerator().processAheadOfTime(built, generated)
        generated.writeGeneratedContent()
        TestCompiler.forSystem().with(generated).compile(::run)
    }

    /** Where weir is, is not known before. */
    private fun run(compiled: Compiled) = GenericApplicationContext().use { context ->
        TestPropertyValues.of("weir.url=${Weir.shared.url}", "weir.deadline=10s").applyTo(context)
        val made = compiled.getInstance(ApplicationContextInitializer::class.java)
        @Suppress("UNCHECKED_CAST")
        (made as ApplicationContextInitializer<GenericApplicationContext>).initialize(context)
        context.refresh()
        val ahead = context.getBean(Ahead::class.java)
        val (a, b) = List(2) { someone() }
        assertEquals("done", ahead.plain(a))
        refused { ahead.plain(a) }
        ahead.async(b)
        refused { ahead.async(b) }
    }
}
