package io.weir.spring

import org.springframework.boot.diagnostics.AbstractFailureAnalyzer
import org.springframework.boot.diagnostics.FailureAnalysis

/** What an application says wrongly, so that it cannot start. It has no cause: one could show a token that stands in an address. */
internal class Mistake(val what: String, val remedy: String? = null) :
    IllegalStateException(listOfNotNull(what, remedy).joinToString(". "))

/** Spring Boot then says what is wrong, and what to do, instead of showing a stack of exceptions. */
internal class MistakeAnalyzer : AbstractFailureAnalyzer<Mistake>() {
    override fun analyze(failure: Throwable, mistake: Mistake) = FailureAnalysis(mistake.what, mistake.remedy, mistake)
}
