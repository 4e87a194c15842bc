import { spawnSync } from 'node:child_process'

export interface ParsedFamily {
  /** Without the `_total` of a counter. */
  readonly name: string
  readonly type: string
  readonly help: string
  readonly samples: readonly { readonly labels: Readonly<Record<string, string>> }[]
}

const PROGRAM = `
import json, sys
from prometheus_client.parser import text_string_to_metric_families
print(json.dumps([
    {'name': family.name, 'type': family.type, 'help': family.documentation,
     'samples': [{'labels': sample.labels} for sample in family.samples]}
    for family in text_string_to_metric_families(sys.stdin.read())
]))
`

/** Parses a text with Debian's python3-prometheus-client; throws when the parser fails. */
export function parseMetrics(text: string): readonly ParsedFamily[] {
  const { status, stdout, stderr } = spawnSync('/usr/bin/python3', ['-c', PROGRAM], {
    input: text,
    encoding: 'utf8',
    timeout: 20_000,
    maxBuffer: 64 * 1024 * 1024,
  })
  if (status !== 0) throw new Error(`prometheus_client: status ${status}: ${stderr}`)
  return JSON.parse(stdout)
}
