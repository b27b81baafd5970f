package io.weir.spring

import com.fasterxml.jackson.databind.ObjectMapper
import io.micrometer.core.instrument.MeterRegistry
import io.micrometer.core.instrument.simple.SimpleMeterRegistry
import org.junit.jupiter.api.Assertions.assertEquals
import org.junit.jupiter.api.Assertions.assertFalse
import org.junit.jupiter.api.Assertions.assertTrue
import org.junit.jupiter.api.Test
import org.junit.jupiter.api.extension.ExtendWith
import org.junit.jupiter.api.assertThrows
import org.springframework.beans.BeanWrapperImpl
import org.springframework.boot.LazyInitializationBeanFactoryPostProcessor
import org.springframework.boot.WebApplicationType
import org.springframework.boot.autoconfigure.AutoConfigurations
import org.springframework.boot.builder.SpringApplicationBuilder
import org.springframework.boot.test.context.FilteredClassLoader
import org.springframework.boot.test.context.runner.ApplicationContextRunner
import org.springframework.boot.test.context.runner.WebApplicationContextRunner
import org.springframework.boot.test.system.CapturedOutput
import org.springframework.boot.test.system.OutputCaptureExtension
import org.springframework.web.bind.annotation.RestControllerAdvice
import java.io.File
import java.lang.reflect.Proxy
import java.nio.file.Files
import java.time.Duration
import kotlin.io.path.deleteExisting
import kotlin.io.path.writeText

@ExtendWith(OutputCaptureExtension::class)
class SettingsTest {
    private val auto = AutoConfigurations.of(WeirAutoConfiguration::class.java)
    private val url = "weir.url=${Weir.shared.url}"
    private val runner = ApplicationContextRunner().withConfiguration(auto).withPropertyValues("weir.deadline=10s")
        .withBean(Ocr::class.java).withBean(Party::class.java)

    @Test
    fun `weir_enabled=false lets everything pass`() {
        runner.withPropertyValues("weir.enabled=false", "weir.url=redis://127.0.0.1:1").run { context ->
            repeat(3) { context.getBean(Ocr::class.java).byPosition("x", "image") }
            val manager = context.getBean(DetectManager::class.java)
            assertFalse(manager.match("teapot", "x").unreachable)
            assertTrue(manager.matchMono("teapot", "x").block()!!.allowed)
        }
    }

    @Test
    fun `an annotation that would be off without a word ends the start`() {
        runner.withPropertyValues(url, "weir.enabled=yes").run { context ->
            val messages = generateSequence(context.startupFailure) { it.cause }.joinToString { it.message.orEmpty() }
            assertTrue("weir.enabled is true, but @Detect is off" in messages, messages)
        }
    }

    @Test
    fun `weir_blank-content=pass lets blank content pass`() {
        runner.withPropertyValues(url, "weir.blank-content=pass").run { context ->
            repeat(3) { context.getBean(Ocr::class.java).byName(User(null)) }
            assertTrue(context.getBean(DetectManager::class.java).match("teapot", " ").allowed)
        }
    }

    @Test
    fun `weir_advice_enabled=false takes the advice away`() {
        val web = WebApplicationContextRunner().withConfiguration(auto).withPropertyValues(url)
        web.run { assertEquals(1, it.getBeansOfType(TooFrequentAdvice::class.java).size) }
        web.withPropertyValues("weir.advice.enabled=false").run {
            assertEquals(0, it.getBeansOfType(TooFrequentAdvice::class.java).size)
        }
    }

    @Test
    fun `neither Micrometer nor Spring's web is needed`() {
        val without = FilteredClassLoader(MeterRegistry::class.java, RestControllerAdvice::class.java)
        runner.withPropertyValues(url, "spring.aop.auto=false").withClassLoader(without).run { context ->
            val user = InApp.someone()
            context.getBean(Ocr::class.java).byPosition(user, "image")
            refused { context.getBean(Ocr::class.java).byPosition(user, "image") }
            refused { context.getBean(Contract::class.java).agreed(user) }
            assertTrue(Proxy.isProxyClass(context.getBean(Contract::class.java).javaClass))
        }
    }

    @Test
    fun `a token goes into the address`(output: CapturedOutput) {
        val file = Files.createTempFile("weir-spring", "token").apply { writeText("a-token-of-weir/serve") }
        try {
            Weir("--token-file", "$file").use { weir ->
                runner.withPropertyValues("weir.url=redis://:a-token-of-weir%2Fserve@127.0.0.1:${weir.port}").run {
                    assertFalse(it.getBean(DetectManager::class.java).match("one", "x").unreachable)
                }
                runner.withPropertyValues("weir.url=${weir.url}").run {
                    assertTrue(it.getBean(DetectManager::class.java).match("one", "x").unreachable)
                }
                runner.withPropertyValues("weir.url=redis://:a-token-of-another@127.0.0.1:${weir.port}").run {
                    assertTrue(it.getBean(DetectManager::class.java).match("one", "x").unreachable)
                }
                assertTrue("it wants a token" in output.all && "the token in weir.url is wrong" in output.all, output.all)
                assertFalse("a-token-of" in output.all, output.all)
            }
        } finally {
            file.deleteExisting()
        }
    }

    @Test
    fun `a connection gives no warning`(output: CapturedOutput) {
        runner.withPropertyValues(url, "logging.level.io.lettuce=WARN").run { context ->
            assertFalse(context.getBean(DetectManager::class.java).match("ocr", InApp.someone()).unreachable)
        }
        assertFalse("WARN" in output.all || "ERROR" in output.all, output.all)
    }

    @Test
    fun `bad settings end the start`() {
        for (setting in listOf("weir.deadline=0", "weir.url=127.0.0.1:6380", "weir.when-unreachable=perhaps")) {
            runner.withPropertyValues(setting).run { assertTrue(it.startupFailure != null, setting) }
        }
    }

    @Test
    fun `a bad address is told with what to do, and without its token`(output: CapturedOutput) {
        val app = SpringApplicationBuilder(App::class.java).web(WebApplicationType.NONE)
        assertThrows<Exception> { app.properties("weir.url=redis://:a to/ken@h").run().close() }
        assertTrue("APPLICATION FAILED TO START" in output.all && "weir.url is no address" in output.all, output.all)
        assertFalse("a to" in output.all)
    }

    @Test
    fun `an application that is lazy connects at its start nevertheless`() {
        val lazy = LazyInitializationBeanFactoryPostProcessor()
        runner.withPropertyValues(url).withInitializer { it.addBeanFactoryPostProcessor(lazy) }
            .run { assertTrue(it.beanFactory.containsSingleton("detectManager")) }
    }

    @Test
    fun `a context that is closed leaves no connection and no thread behind, also if it is made anew`() {
        fun threads() = Thread.getAllStackTraces().keys.filter { Regex("(lettuce|weir)-.*").matches(it.name) }.toSet()
        Weir().use { weir ->
            repeat(2) {
                val before = threads()
                runner.withPropertyValues("weir.url=${weir.url}").run { context ->
                    val manager = context.getBean(DetectManager::class.java)
                    assertFalse(manager.match("ocr", "x").unreachable || manager.matchMono("ocr", "x").block()!!.unreachable)
                    assertEquals(1, weir.connections())
                    assertTrue(threads().size > before.size)
                }
                until("the connection is closed") { weir.connections().takeIf { it == 0 } }
                until<Any>("the threads end") { (threads() - before).takeIf { it.isEmpty() } }
            }
        }
    }

    @Test
    fun `several registries all count`() {
        val registry = SimpleMeterRegistry::class.java
        runner.withPropertyValues(url).withBean("a", registry).withBean("b", registry).run { context ->
            context.getBean(DetectManager::class.java).match("unknown", "x")
            for (each in context.getBeansOfType(registry).values)
                assertEquals(1.0, each.counter("weir.decisions", "event", "unknown", "outcome", "allowed").count())
        }
    }

    @Test
    fun `IDEs are told of each setting`() {
        val file = File("src/main/resources/META-INF/spring-configuration-metadata.json")
        val told = ObjectMapper().readTree(file)["properties"].associate { it["name"].asText() to (it["defaultValue"]?.asText() ?: "null") }
        val bean = BeanWrapperImpl(WeirProperties())
        val tls = listOf("ssl.caCerts", "ssl.certfile", "ssl.keyfile", "ssl.bundle")
        val names = listOf("enabled", "url", "deadline", "whenUnreachable", "blankContent", "advice.enabled") + tls
        assertEquals(names.associate { "weir." + dashed(it) to plain(bean.getPropertyValue(it)) }, told)
    }

    private fun dashed(name: String) = name.replace(Regex("[A-Z]")) { "-" + it.value.lowercase() }

    private fun plain(value: Any?) = if (value is Duration) "${value.toMillis()}ms" else "$value".lowercase()
}
