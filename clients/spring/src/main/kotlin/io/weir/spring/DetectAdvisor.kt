package io.weir.spring

import org.aopalliance.aop.Advice
import org.aopalliance.intercept.MethodInterceptor
import org.aopalliance.intercept.MethodInvocation
import org.reactivestreams.Publisher
import org.springframework.aop.Pointcut
import org.springframework.aop.PointcutAdvisor
import org.springframework.aop.ProxyMethodInvocation
import org.springframework.aop.framework.Advised
import org.springframework.aop.interceptor.ExposeInvocationInterceptor
import org.springframework.aop.support.DefaultPointcutAdvisor
import org.springframework.aop.support.Pointcuts
import org.springframework.aop.support.StaticMethodMatcherPointcutAdvisor
import reactor.core.publisher.Flux
import reactor.core.publisher.Mono
import java.lang.reflect.Method
import java.util.concurrent.CancellationException
import java.util.concurrent.CompletionStage
import java.util.concurrent.atomic.AtomicBoolean

/**
 * Puts the interceptor before guarded methods. The class filter reads a bean's class when the bean is made, so that mistakes
 * show then.
 */
internal class DetectAdvisor(private val guards: Guards, private val manager: () -> DetectManager) :
    StaticMethodMatcherPointcutAdvisor(DetectInterceptor(guards, manager)) {
    init {
        order = ORDER
        setClassFilter(guards::any)
    }

    override fun matches(method: Method, targetClass: Class<*>) = guards.of(method, targetClass) != null

    /** Asks for those methods that another advisor, too, has to do with: to stand before that one. This one then does not. */
    fun before(other: PointcutAdvisor) =
        AsksAhead(Pointcuts.intersection(this, other.pointcut), DetectInterceptor(guards, manager, ahead = true))

    private companion object {
        /** After Spring Security's checks of methods, which cost nobody anything; before transactions, caches and retries. */
        const val ORDER = 1000
    }
}

/** See [DetectAdvisor.before]. */
internal class AsksAhead(pointcut: Pointcut, advice: Advice) : DefaultPointcutAdvisor(pointcut, advice)

/** @param ahead another one comes later, see [DetectAdvisor.before] */
private class DetectInterceptor(private val guards: Guards, manager: () -> DetectManager, private val ahead: Boolean = false) :
    MethodInterceptor {
    /**
     * Only when it is needed: the advisor is made before all beans, and must not draw others along. Without a lock: whoever asks
     * for a bean may have to wait for another thread that makes beans, and calls a guarded one.
     */
    private val manager by lazy(LazyThreadSafetyMode.PUBLICATION, manager)

    override fun invoke(invocation: MethodInvocation): Any? = invoke(invocation as ProxyMethodInvocation)

    private fun invoke(invocation: ProxyMethodInvocation): Any? {
        if (guarded(invocation.`this`)) return invocation.proceed()
        val type = invocation.`this`?.javaClass ?: invocation.method.declaringClass
        val guard = checkNotNull(guards.of(invocation.method, type)) { "${invocation.method} of $type was guarded, and is no more" }
        val admission = if (ahead) null else admitted(invocation)
        return when {
            admission != null -> watched(invocation, admission)
            guard.shape is Shape.Plain -> now(invocation, guard)
            ahead -> nowFuture(invocation, guard, guard.shape as Shape.Later)
            else -> later(invocation, guard, guard.shape as Shape.Later)
        }
    }

    /** A bean that is published under a second name has a proxy before its proxy, and is to be charged once. */
    private fun guarded(target: Any?) = target is Advised && target.advisors.any { it is DetectAdvisor }

    /** What the one ahead was told. It holds once: whoever then tries again asks again. */
    private fun admitted(invocation: ProxyMethodInvocation): Admission? =
        (invocation.getUserAttribute(ADMISSION) as Admission?)?.also { invocation.setUserAttribute(ADMISSION, null) }

    private fun now(invocation: ProxyMethodInvocation, guard: Guard): Any? {
        val admission = ask(invocation, guard)
        if (ahead) invocation.setUserAttribute(ADMISSION, admission)
        return watched(invocation, admission)
    }

    /** Watches also a future that is declared as something less, so that nobody could know. */
    private fun watched(invocation: MethodInvocation, admission: Admission): Any? {
        val result = proceed(invocation, admission)
        if (result is CompletionStage<*>) watch(result, admission)
        // Ahead of an executor the work may not have begun: it ends where the other interceptor is.
        else if (!ahead) admission.end(manager, failed = false)
        return result
    }

    /**
     * A future of `@Async`. It is the caller's thread that has to go on, and so to wait: executors hand on what that carries, such
     * as who is logged in.
     */
    private fun nowFuture(invocation: ProxyMethodInvocation, guard: Guard, shape: Shape.Later): Any? {
        val admission = runCatching { ask(invocation, guard) }
            .getOrElse { return shape.adapter?.fromPublisher(Mono.error<Any>(it)) ?: throw it }
        invocation.setUserAttribute(ADMISSION, NOTHING)
        val result = proceed(invocation, admission)
        if (result is CompletionStage<*>) return watch(result, admission)
        admission.end(manager, failed = false)
        return result
    }

    private fun ask(invocation: MethodInvocation, guard: Guard): Admission {
        val asked = questions(invocation, guard)
        return Admission(asked, manager.admit(asked.map { it.question }))
    }

    /** What it returns is done after it was given back. */
    private fun watch(work: CompletionStage<*>, admission: Admission): CompletionStage<*> = work.whenComplete { _, error ->
        admission.end(manager, failed = error != null && error !is CancellationException)
    }

    private fun proceed(invocation: MethodInvocation, admission: Admission): Any? = try {
        invocation.proceed()
    } catch (e: Throwable) {
        admission.end(manager, failed = true)
        throw e
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
        fun work() = proceed(invocation.invocableClone(), shape)
        val whole: Publisher<*> = if (shape.many) {
            admitted.flatMapMany { passed ->
                Flux.defer(::work).doOnComplete { passed.end(manager, failed = false) }
                    .doOnError { passed.end(manager, failed = true) }.doOnCancel { passed.end(manager, failed = false) }
            }
        } else {
            admitted.flatMap { passed ->
                Mono.defer { Mono.from(work()) }.doOnSuccess { passed.end(manager, failed = false) }
                    .doOnError { passed.end(manager, failed = true) }.doOnCancel { passed.end(manager, failed = false) }
            }
        }
        return shape.adapter?.fromPublisher(whole) ?: whole
    }

    /**
     * Advice of AspectJ looks for the invocation in its thread, which is another one now. And Reactor throws where others would
     * be told of an error that it holds to be fatal, such as a class that is missing: so it is not to see one thrown.
     */
    private fun proceed(invocation: MethodInvocation, shape: Shape.Later): Publisher<Any> = try {
        val result = ExposeInvocationInterceptor.INSTANCE.invoke(invocation)
        @Suppress("UNCHECKED_CAST")
        shape.adapter?.toPublisher<Any>(result) ?: result as Publisher<Any>
    } catch (e: Throwable) {
        Mono.error(e)
    }

    private fun questions(invocation: MethodInvocation, guard: Guard): List<Asked> {
        val several = guard.checks.size > 1
        return guard.checks.mapNotNull { check ->
            val args = invocation.arguments
            val receipt = several || check.refundOnException
            manager.question(check.event, check.key(args), check.cost(args), receipt, check.costs(args), check.where)
                ?.let { Asked(it, check.refundOnException) }
        }
    }
}

private class Asked(val question: Question, val refundOnException: Boolean)

/** What has passed, and what of it goes back if the work fails. */
private class Admission(private val asked: List<Asked>, private val verdicts: List<Verdict>) {
    private val over = AtomicBoolean()

    /** Slots are free when the call is over, on every path. A second end changes nothing. */
    fun end(manager: DetectManager, failed: Boolean) {
        if (!over.compareAndSet(false, true)) return
        val (back, rest) = asked.zip(verdicts).partition { (asked, _) -> failed && asked.refundOnException }
        manager.giveBack(back.map { (_, verdict) -> verdict })
        manager.letGo(rest.map { (_, verdict) -> verdict })
    }
}

/** Where an invocation says that weir was asked for it. */
private const val ADMISSION = "io.weir.spring.admission"

/** Where the one ahead sees it, too, if the work fails. */
private val NOTHING = Admission(emptyList(), emptyList())
