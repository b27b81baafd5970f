package io.weir.spring

import org.aopalliance.intercept.MethodInterceptor
import org.aopalliance.intercept.MethodInvocation
import org.reactivestreams.Publisher
import org.springframework.aop.ProxyMethodInvocation
import org.springframework.aop.support.AopUtils
import org.springframework.aop.support.StaticMethodMatcherPointcutAdvisor
import reactor.core.publisher.Flux
import reactor.core.publisher.Mono
import java.lang.reflect.Method

/**
 * Puts the interceptor before guarded methods. The class filter reads a bean's class when the bean is made, so that mistakes
 * show then.
 */
internal class DetectAdvisor(private val guards: Guards, manager: () -> DetectManager) :
    StaticMethodMatcherPointcutAdvisor(DetectInterceptor(guards, manager)) {
    init {
        order = ORDER
        setClassFilter { guards.of(it).isNotEmpty() }
    }

    override fun matches(method: Method, targetClass: Class<*>) = guards.of(method, targetClass) != null

    private companion object {
        /** After Spring Security's checks of methods, which cost nobody anything; before transactions and caches. */
        const val ORDER = 1000
    }
}

private class DetectInterceptor(private val guards: Guards, manager: () -> DetectManager) : MethodInterceptor {
    /** Only when it is needed: the advisor is made before all beans, and must not draw others along. */
    private val manager by lazy(manager)

    override fun invoke(invocation: MethodInvocation): Any? {
        val type = invocation.`this`?.let(AopUtils::getTargetClass) ?: invocation.method.declaringClass
        val guard = guards.of(invocation.method, type) ?: return invocation.proceed()
        return when (guard.shape) {
            Shape.Plain -> now(invocation, guard)
            is Shape.Later -> later(invocation as ProxyMethodInvocation, guard, guard.shape)
        }
    }

    private fun now(invocation: MethodInvocation, guard: Guard): Any? {
        val asked = questions(invocation, guard)
        val admission = Admission(asked, manager.admit(asked.map { it.question }))
        try {
            return invocation.proceed()
        } catch (e: Throwable) {
            manager.giveBack(admission.refundable())
            throw e
        }
    }

    /**
     * Arguments are looked at now, in the caller's thread; weir is asked at each subscription, and each goes on with a copy of the
     * invocation, since one can proceed only once.
     */
    private fun later(invocation: ProxyMethodInvocation, guard: Guard, shape: Shape.Later): Any {
        val asked = runCatching { questions(invocation, guard) }
        val admitted = asked.fold(
            { all -> manager.admitMono(all.map { it.question }).map { Admission(all, it) } },
            { Mono.error(it) },
        )
        fun work() = publisher(invocation.invocableClone().proceed(), shape)
        val whole: Publisher<*> = if (shape.many) {
            admitted.flatMapMany { passed -> Flux.defer(::work).doOnError { manager.giveBack(passed.refundable()) } }
        } else {
            admitted.flatMap { passed -> Mono.defer { Mono.from(work()) }.doOnError { manager.giveBack(passed.refundable()) } }
        }
        return shape.adapter?.fromPublisher(whole) ?: whole
    }

    private fun publisher(result: Any?, shape: Shape.Later): Publisher<Any> {
        @Suppress("UNCHECKED_CAST")
        return shape.adapter?.toPublisher<Any>(result) ?: result as Publisher<Any>
    }

    private fun questions(invocation: MethodInvocation, guard: Guard): List<Asked> {
        val several = guard.checks.size > 1
        return guard.checks.mapNotNull { check ->
            val args = invocation.arguments
            manager.question(check.event, check.key(args), check.cost(args), several || check.refundOnException, check.where)
                ?.let { Asked(it, check.refundOnException) }
        }
    }
}

private class Asked(val question: Question, val refundOnException: Boolean)

/** What has passed, and what of it goes back if the work fails. */
private class Admission(private val asked: List<Asked>, private val verdicts: List<Verdict>) {
    fun refundable() = asked.zip(verdicts).filter { (asked, _) -> asked.refundOnException }.map { (_, verdict) -> verdict }
}
