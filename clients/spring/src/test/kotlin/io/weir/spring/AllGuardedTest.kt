package io.weir.spring

import io.weir.spring.InApp.Companion.someone
import org.junit.jupiter.api.Assertions.assertTrue
import org.junit.jupiter.api.Test
import org.springframework.beans.factory.annotation.Qualifier
import org.springframework.beans.factory.config.BeanFactoryPostProcessor
import org.springframework.beans.factory.config.BeanPostProcessor
import org.springframework.boot.autoconfigure.AutoConfigurations
import org.springframework.boot.autoconfigure.task.TaskExecutionAutoConfiguration
import org.springframework.boot.test.context.assertj.AssertableApplicationContext
import org.springframework.boot.test.context.runner.ApplicationContextRunner
import org.springframework.context.annotation.Bean
import org.springframework.core.Ordered
import org.springframework.core.PriorityOrdered
import org.springframework.scheduling.annotation.Async
import org.springframework.scheduling.annotation.EnableAsync

interface Face {
    fun plain(user: String)

    fun async(user: String)
}

class Work : Face {
    @Detect(eventId = "one", contentSpel = "#arg1")
    override fun plain(user: String) = Unit

    @Async
    @Detect(eventId = "one", contentSpel = "#arg1")
    override fun async(user: String) = Unit
}

open class WithWork {
    @Bean
    open fun work(): Face = Work()
}

@EnableAsync(order = Ordered.HIGHEST_PRECEDENCE)
open class HiddenByAsync : WithWork()

open class DrawnEarly : WithWork() {
    companion object {
        @JvmStatic
        @Bean
        fun drawing() = BeanFactoryPostProcessor { it.getBean("work") }
    }
}

open class DrawnByProcessor : WithWork() {
    class Processor(@Suppress("unused") val work: Face) : BeanPostProcessor, PriorityOrdered {
        override fun getOrder() = 0
    }

    companion object {
        @JvmStatic
        @Bean
        fun drawing(work: Face) = Processor(work)
    }
}

@EnableAsync
open class DrawnLate : WithWork() {
    companion object {
        @JvmStatic
        @Bean
        fun drawing(@Suppress("UNUSED_PARAMETER") work: Face) = object : BeanPostProcessor {}
    }
}

@EnableAsync
open class SecondName : WithWork() {
    @Bean
    open fun second(@Qualifier("work") work: Face): Face = work
}

class AllGuardedTest {
    private fun within(type: Class<*>, test: (AssertableApplicationContext) -> Unit) {
        ApplicationContextRunner()
            .withConfiguration(AutoConfigurations.of(WeirAutoConfiguration::class.java, TaskExecutionAutoConfiguration::class.java))
            .withUserConfiguration(type).withPropertyValues("weir.url=${Weir.shared.url}", "weir.deadline=10s").run(test)
    }

    private fun ends(type: Class<*>) = within(type) { context ->
        val failure = generateSequence(context.startupFailure) { it.cause }.last()
        assertTrue(failure is Mistake && "Work (the bean work) has @Detect, but nothing stands" in "$failure", "$failure")
    }

    @Test
    fun `a bean that another proxy hides ends the start`() = ends(HiddenByAsync::class.java)

    @Test
    fun `a bean that was made too early ends the start`() {
        ends(DrawnEarly::class.java)
        ends(DrawnByProcessor::class.java)
    }

    @Test
    fun `a bean that is made before our last processor asks in the caller, too`() = within(DrawnLate::class.java) { context ->
        val user = someone()
        context.getBean("work", Face::class.java).async(user)
        refused { context.getBean("work", Face::class.java).async(user) }
    }

    @Test
    fun `a second name for a proxy of the JDK charges once`() =
        within(SecondName::class.java) { context ->
            val (a, b) = List(2) { someone() }
            val face = context.getBean("second", Face::class.java)
            face.plain(a)
            refused { face.plain(a) }
            face.async(b)
            refused { face.async(b) }
        }
}
