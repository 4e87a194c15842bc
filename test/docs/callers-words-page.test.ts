import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { CreateContainerRequest, ExecProcessRequest } from '../../src/gen/agent.ts'
import type { Process, Spec } from '../../src/gen/oci.ts'
import { allRecordings } from '../recordings/recording.ts'

interface Row {
  readonly word: string
  readonly forms: string
  readonly sources: readonly string[]
}

/** A row without a word belongs to the word of the previous row. */
function rowsOfPage(): Row[] {
  const page = readFileSync(join(import.meta.dirname, '../../docs/reference/callers-words.md'), 'utf8')
  const [table = ''] = page.slice(page.indexOf('| word |')).split('\n\n')
  let word = ''
  return table
    .split('\n')
    .slice(2)
    .map((line) => line.split(' | ').map((cell) => cell.replace(/^\| ?| \|$/g, '')))
    .map(([first = '', forms = '', , sources = '']) => {
      if (first !== '') word = first
      return { word, forms, sources: sources.split(', ') }
    })
}

type Word = readonly [word: string, form: string]

const CALLERS = { 'go-shim': 'Go', 'runtime-rs': 'rs', 'agent-ctl': 'ctl' } as const

const wordsOfProcess = ({ Capabilities: sets, Rlimits }: Process): Word[] => [
  ...Object.values(sets ?? {})
    .flat()
    .map((name): Word => ['process.capabilities.*', name.startsWith('CAP_') ? 'CAP_CHOWN' : 'CHOWN']),
  ...Rlimits.map((): Word => ['process.rlimits[].type', 'RLIMIT_NOFILE']),
]

const wordsOfSpec = ({ Version, Process: process, Linux: linux }: Spec): Word[] => [
  ['ociVersion', Version],
  ...(process === undefined ? [] : wordsOfProcess(process)),
  ...(linux?.Namespaces ?? []).map(({ Type }): Word => ['linux.namespaces[].type', Type]),
  ...(linux?.Devices ?? []).map(({ Type }): Word => ['linux.devices[].type', Type]),
  ...(linux?.Seccomp?.Architectures ?? []).map((): Word => {
    return ['linux.seccomp.architectures[]', 'SCMP_ARCH_X86_64']
  }),
  ...(linux?.Resources?.Devices ?? [])
    .filter(({ Type }) => Type !== '')
    .map(({ Type }): Word => ['linux.resources.devices[].type', Type]),
]

const recorded = allRecordings()
  .flatMap(({ name, lines }) => lines.map((line) => ({ name, line })))
  .flatMap(({ name, line }) => {
    if (line.kind !== 'call' || line.requestBytes === undefined) return []
    const caller = Object.entries(CALLERS).find(([prefix]) => name.startsWith(prefix))?.[1] ?? name
    const words =
      line.method === 'CreateContainer'
        ? [CreateContainerRequest.decode(line.requestBytes).OCI].flatMap((spec) =>
            spec ? wordsOfSpec(spec) : [],
          )
        : line.method === 'ExecProcess'
          ? [ExecProcessRequest.decode(line.requestBytes).process].flatMap((one) =>
              one ? wordsOfProcess(one) : [],
            )
          : []
    return words.map(([word, form]) => `${caller}: ${word} ${form}`)
  })

describe('docs/reference/callers-words.md', () => {
  const known = new Set(
    rowsOfPage().flatMap(({ word, forms, sources }) =>
      sources.flatMap((source) =>
        word
          .replaceAll('`', '')
          .split(', ')
          .flatMap((one) =>
            [...forms.matchAll(/`([^`]+)`/g)].map(([, form = '']) => `${source}: ${one} ${form}`),
          ),
      ),
    ),
  )

  it.each([...new Set(recorded)])('has the recorded word %s', (word) => {
    expect(known).toContain(word)
  })

  it('is compared with more than a few words', () => {
    expect(new Set(recorded).size).toBeGreaterThan(15)
  })
})
