import type { AgentPod } from '../../test/support/host/agent-pod.ts'
import { processes } from '../../test/support/processes.ts'
import { benchPod } from '../support/bench-pod.ts'
import { report } from '../support/figure.ts'
import { startOrphansOf } from '../support/orphans.ts'
import { pssMibOf } from '../support/process-figures.ts'

/** The memory of vminit and the broker beside an idle agent, before and after 100,000 exits and 20,000 calls. */
const EXITS = 100_000
const CALLS = 20_000
const LIMIT_MIB = 2

const pod = await benchPod()
try {
  await pod.run('idle', ['/bin/sleep', '1000000'])
  figure('vminit and broker, idle', pod)
  const orphans = await startOrphansOf(pod)
  await orphans.end(EXITS)
  orphans.close()
  for (let call = 0; call < CALLS; call++) await pod.started.health.check({})
  figure('vminit and broker after 100,000 exits', pod)
} finally {
  await pod.stop()
}

function figure(name: string, { started: { vminitPid } }: AgentPod): void {
  const broker = processes().find(({ parent, name }) => parent === vminitPid && name === 'api-broker')
  if (broker === undefined) throw new Error('vminit has no broker')
  const phases = { vminit: pssMibOf(vminitPid), broker: pssMibOf(broker.pid) }
  const value = phases.vminit + phases.broker
  report({ figure: name, unit: 'MiB', value, floor: LIMIT_MIB, limit: 1, phases })
}
