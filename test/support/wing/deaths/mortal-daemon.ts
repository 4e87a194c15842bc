// A daemon's instances that live a life from a call on, and die at a commit: LIFE FOLDER FIRST COMMIT WHEN.
import { join } from 'node:path'
import type { Instances } from '../../../../src/host/instance/instances.ts'
import { openRegistry } from '../../../../src/host/instance/registry/open-registry.ts'
import { DAEMON_LIFE } from '../lives/daemon-life.ts'
import { DOCUMENT_LIFE } from '../lives/document-life.ts'
import { LIFE } from '../lives/life.ts'
import type { LifeName } from '../lives/run-life.ts'
import { daemonLifePlan, documentLifePlan, filteredLifePlan, openReal } from '../real-wing.ts'
import { mortalRegistry } from './mortal-registry.ts'

const [, , life = '', folder = '', first = '', commit = '', when = 'before'] = process.argv
const disks = join(folder, 'disks')
const LIVES = {
  machine: () => bound(LIFE, filteredLifePlan(disks)),
  daemons: () => bound(DAEMON_LIFE, daemonLifePlan(disks)),
  documents: () => bound(DOCUMENT_LIFE, documentLifePlan(disks)),
} as const satisfies Record<LifeName, unknown>
const calls = LIVES[life as LifeName]()
const die = () => process.kill(process.pid, 'SIGKILL')
const real = await openRegistry(folder)
const death = { commit: Number(commit), when: when === 'after' ? 'after' : 'before' } as const
const registry = death.commit === 0 ? real : mortalRegistry(real, death, die)
const catalogue = life === 'documents' ? join(disks, 'catalogue.toml') : undefined
const instances = await openReal(folder, registry, { catalogue })
for (const [name, call] of calls.slice(calls.findIndex(([name]) => name === first))) {
  process.stdout.write(`${name}\n`)
  await call(instances)
}
await instances.close()
await registry.close()
process.stdout.write('end\n')

function bound<Plan>(
  life: Readonly<Record<string, (instances: Instances, plan: Plan) => Promise<unknown>>>,
  plan: Plan,
) {
  return Object.entries(life).map(
    ([name, call]) => [name, (instances: Instances) => call(instances, plan)] as const,
  )
}
