import { readFileSync } from 'node:fs'
import { join } from 'node:path'

export interface ReferenceLine {
  readonly script: string
  readonly calls: readonly string[]
}

export function referenceLines(): readonly ReferenceLine[] {
  return blockOf('sh').map((line) => {
    const [script = '', calls = ''] = line.split(/ # ?(?=[\w ]*$)/)
    return { script, calls: calls.split(' ').filter((name) => name !== '') }
  })
}

/** The README's commands for requests of `agent-ctl.every-command`, each with its line. */
export function recordedCommands(): readonly (readonly [line: number, command: string])[] {
  return blockOf('text').map((text) => {
    const [, line, command = ''] = /^(\d+) (.+)$/.exec(text) ?? []
    return [Number(line), command]
  })
}

function blockOf(kind: string): readonly string[] {
  const readme = readFileSync(join(import.meta.dirname, '../fixtures/recordings/README.md'), 'utf8')
  const [, block] = readme.match(new RegExp(`^\`\`\`${kind}\\n(.*?)^\`\`\``, 'ms')) ?? []
  if (block === undefined) throw new Error(`README.md of the recordings: no block of ${kind}`)
  return block.trimEnd().split('\n')
}
