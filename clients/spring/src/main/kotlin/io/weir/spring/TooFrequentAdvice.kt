package io.weir.spring

import org.springframework.core.annotation.Order
import org.springframework.http.HttpHeaders
import org.springframework.http.ProblemDetail
import org.springframework.http.ResponseEntity
import org.springframework.web.bind.annotation.ExceptionHandler
import org.springframework.web.bind.annotation.RestControllerAdvice
import java.net.URI

/**
 * Answers a refusal with the status that the rule says (429), the standard headers and a few words. Advice without an order of
 * its own comes later, so that one for any Exception does not make a 500 of it.
 */
@RestControllerAdvice
@Order(0)
class TooFrequentAdvice {
    @ExceptionHandler
    fun answer(refusal: OperationTooFrequentException): ResponseEntity<ProblemDetail> {
        val verdict = refusal.verdict
        val problem = ProblemDetail.forStatus(verdict.status).apply {
            type = URI.create(TYPES + problem(verdict))
            detail = detail(verdict)
            val violated = violated(verdict)
            if (violated.isNotEmpty()) setProperty("violated-policies", violated)
        }
        val headers = HttpHeaders().apply { verdict.headers().forEach(::add) }
        return ResponseEntity.status(verdict.status).headers(headers).body(problem)
    }

    /** The header of a refusal has all limits that refuse. */
    private fun violated(verdict: Verdict): List<String> =
        Regex("(?:^|, )\"([^\"]*)\"").findAll(verdict.headers()["RateLimit"].orEmpty()).map { it.groupValues[1] }.toList()

    private fun detail(verdict: Verdict): String {
        val what = if (verdict.unavailable) "Temporarily unavailable" else "Too many requests"
        return what + (verdict.retryAfter?.let { "; try again in ${secondsUp(it)} s" } ?: "")
    }
}

private fun problem(verdict: Verdict) = when {
    verdict.unavailable -> "temporary-reduced-capacity"
    verdict.penalty -> "abnormal-usage-detected"
    else -> "quota-exceeded"
}

/** The problem types of draft-ietf-httpapi-ratelimit-headers-11. */
private const val TYPES = "https://iana.org/assignments/http-problem-types#"
