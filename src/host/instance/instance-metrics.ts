import { printSamples } from '../../base/exposition.ts'
import { State } from '../../gen/microvm/instance/v1/instance.ts'

/** What is counted since the daemon's start. */
export interface InstanceCounts {
  /** Changes by their kind, `adopted` and `holder died` among them. */
  readonly changes: ReadonlyMap<string, number>
  /** Sessions of QMP that QEMU broke: by garbage, or by no answer. */
  readonly qmpErrors: number
}

/** The daemon's metrics of its instances, in Prometheus text form. */
export function printInstanceMetrics(states: readonly State[], counts: InstanceCounts): string {
  const byState = Map.groupBy(states, (state) => STATE_NAMES[state])
  return [
    printSamples(
      'microvm_instances',
      { help: 'Instances of this host by state.', type: 'gauge' },
      [...byState].map(([state, all]) => ({ labels: { state }, value: all.length })),
    ),
    printSamples(
      'microvm_instance_changes_total',
      { help: 'Changes of instances by kind since the start of the daemon.', type: 'counter' },
      [...counts.changes].map(([kind, value]) => ({ labels: { kind }, value })),
    ),
    printSamples(
      'microvm_qmp_errors_total',
      { help: 'Sessions with QEMU that ended by garbage or without an answer.', type: 'counter' },
      [{ value: counts.qmpErrors }],
    ),
  ].join('')
}

const STATE_NAMES: Readonly<Record<State, string>> = {
  [State.STATE_UNSPECIFIED]: 'unknown',
  [State.AWAITING]: 'awaiting',
  [State.CREATING]: 'creating',
  [State.PAUSED]: 'paused',
  [State.RUNNING]: 'running',
  [State.STOPPING]: 'stopping',
  [State.STOPPED]: 'stopped',
  [State.REMOVING]: 'removing',
  [State.TERMINATED]: 'terminated',
}
