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
        if (bean is Advised && !bean.isFrozen) sort(bean)
        return bean
    }

    private fun sort(proxy: Advised) {
        val async = proxy.advisors.filterIsInstance<AsyncAnnotationAdvisor>().firstOrNull() ?: return
        val detect = proxy.advisors.filterIsInstance<DetectAdvisor>().firstOrNull() ?: return
        // An application's own processor may put @Async last.
        val index = proxy.indexOf(async)
        if (index < proxy.indexOf(detect)) proxy.addAdvisor(index, detect.before(async))
    }
}
