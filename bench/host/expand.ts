import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { readDocument } from '../../src/host/machine/document/document.ts'
import { parseYaml } from '../../src/host/machine/document/parse-yaml.ts'
import { expand } from '../../src/host/machine/expand.ts'
import { askedQemu } from '../../src/host/qemu/capabilities.ts'
import { median, report } from '../support/figure.ts'

/** The whole machine of a document, against the times that a caller may notice. */
const ROUNDS = 200
const QEMU_ROUNDS = 11
const EXAMPLE = readFileSync(
  join(import.meta.dirname, '../../test/fixtures/machines/kubevirt-vm.yaml'),
  'utf8',
)

const disks = Array.from({ length: 150 }, (_, index) => `      - { source: volume-${index} }`)
const cards = Array.from({ length: 50 }, (_, index) => `      - { source: network-${index} }`)
const MANY = [
  'kind: VM',
  'spec:',
  '  features:',
  '    storage:',
  ...disks,
  '    network:',
  ...cards,
  '',
].join('\n')

const values = { example: parseYaml(EXAMPLE), many: parseYaml(MANY) }
const expandValue = (value: unknown) => expand(readDocument(value), { isPrivileged: true })

report(figureOf('the example of KubeVirt', () => expandValue(values.example), 5))
report(figureOf('200 devices', () => expandValue(values.many), 50))
// The parser of YAML takes nearly all of it.
report(figureOf('the example from its text', () => expandValue(parseYaml(EXAMPLE)), 20))

const capabilities = await capabilityTimes()
report({
  ...{ figure: 'expand: what QEMU can do, beyond a bare QEMU', unit: 'ms', floor: 300, limit: 1 },
  ...{ value: capabilities.cold - capabilities.bare, phases: capabilities },
})

/** Of a daemon that does not know this QEMU, and of a QEMU that greets and ends. */
async function capabilityTimes() {
  const program = 'qemu-system-x86_64'
  const words = ['-machine', 'none', '-accel', 'tcg', '-nodefaults', '-no-user-config', '-display', 'none']
  const bare = async () => {
    const child = spawn(program, [...words, '-S', '-qmp', 'stdio'], { stdio: ['pipe', 'ignore', 'ignore'] })
    child.stdin.end('{"execute":"qmp_capabilities"}\n{"execute":"quit"}\n')
    await once(child, 'close')
  }
  const times = { bare: [] as number[], cold: [] as number[] }
  for (let round = 0; round < QEMU_ROUNDS; round++) {
    for (const [name, work] of [
      ['bare', bare],
      ['cold', () => askedQemu(program, 'tcg').capabilities()],
    ] as const) {
      const begin = performance.now()
      await work()
      times[name].push(performance.now() - begin)
    }
  }
  return { bare: median(times.bare), cold: median(times.cold) }
}

function figureOf(name: string, work: () => unknown, mostMs: number) {
  const times = Array.from({ length: ROUNDS }, () => timeMs(work))
  return { figure: `expand: ${name}`, value: median(times), unit: 'ms', floor: mostMs, limit: 1 } as const
}

function timeMs(work: () => unknown): number {
  const begin = performance.now()
  work()
  return performance.now() - begin
}
