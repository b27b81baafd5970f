package io.weir.spring;

import org.springframework.stereotype.Service;

/** The compiler gives a public heir of a hidden class a bridge to each of its public methods. */
@Service
public class Heir extends Hidden {
}
