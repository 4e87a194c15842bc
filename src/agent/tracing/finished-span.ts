import type { Attributes } from '@opentelemetry/api'
import type { JsonTraceSerializer } from '@opentelemetry/otlp-transformer'
import { resourceFromAttributes } from '@opentelemetry/resources'

/** A span that is over, as OpenTelemetry's exporters take it. */
export type FinishedSpan = Parameters<typeof JsonTraceSerializer.serializeRequest>[0][number]

/** What all spans of an agent have in common. */
export type CommonOfSpans = ReturnType<typeof commonOfSpans>

/** What all spans of an agent have in common: where they come from, and what none of them has. */
export function commonOfSpans(resource: Attributes) {
  const none = { links: [], droppedLinksCount: 0, events: [], droppedEventsCount: 0 }
  return {
    ...none,
    droppedAttributesCount: 0,
    ended: true,
    resource: resourceFromAttributes(resource),
    instrumentationScope: { name: String(resource['service.name']) },
  }
}
