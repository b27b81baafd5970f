package io.weir.spring

import org.springframework.aop.framework.Advised
import org.springframework.beans.factory.config.BeanPostProcessor
import org.springframework.scheduling.annotation.AsyncAnnotationAdvisor

/**
 * Asks weir before `@Async` goes on elsewhere: so a refusal reaches the caller, `#request` is there, and what is refused does not
 * fill the executor's queue. Spring puts `@Async` before all others when those are sorted already, so that no order helps. This
 * processor has none, to come after Spring's; and the methods that are not `@Async` keep theirs.
 */
internal class BeforeAsync : BeanPostProcessor {
    override fun postProcessAfterInitialization(bean: Any, beanName: String): Any {
        sort(bean)
        return bean
    }

    companion object {
        fun sort(bean: Any) {
            if (bean !is Advised || bean.isFrozen) return
            val async = bean.advisors.filterIsInstance<AsyncAnnotationAdvisor>().firstOrNull() ?: return
            val detect = bean.advisors.filterIsInstance<DetectAdvisor>().firstOrNull() ?: return
            // An application's own processor may put @Async last.
            if (bean.indexOf(detect) < bean.indexOf(async)) return
            // A bean with a second name comes twice, and has @Async twice then.
            val ahead = bean.advisors.firstOrNull { it is AsksAhead }?.also(bean::removeAdvisor) ?: detect.before(async)
            bean.addAdvisor(bean.indexOf(async), ahead)
        }
    }
}
