import { readFileSync } from 'node:fs'
import { join } from 'node:path'

/** A command line of the reference's tool, for a shell, and the calls that it makes. */
export interface ReferenceLine {
  readonly script: string
  readonly calls: readonly string[]
}

/** The command lines that the recordings' README has. */
export function referenceLines(): readonly ReferenceLine[] {
  return blockOf('sh').map((line) => {
    const [script = '', calls = ''] = line.split(/ # ?(?=[\w ]*$)/)
    return { script, calls: calls.split(' ').filter((name) => name !== '') }
  })
}

/** The commands of the README for requests of `agent-ctl.every-command`, each with its line. */
export function recordedCommands(): readonly (readonly [line: number, command: string])[] {
  return blockOf('text').map((text) => {
    const [, line, command = ''] = /^(\d+) (.+)$/.exec(text) ?? []
    return [Number(line), command]
  })
}

/** The lines of the README's only block of this kind. */
function blockOf(kind: string): readonly string[] {
  const readme = readFileSync(join(import.meta.dirname, '../fixtures/recordings/README.md'), 'utf8')
  const [, block] = readme.match(new RegExp(`^\`\`\`${kind}\\n(.*?)^\`\`\``, 'ms')) ?? []
  if (block === undefined) throw new Error(`README.md of the recordings: no block of ${kind}`)
  return block.trimEnd().split('\n')
}
