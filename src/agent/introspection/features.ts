import { NO_POLICY_ENGINE } from '../../os/policy/policy-engine.ts'
import type { Feature } from './capabilities.ts'

export interface FeatureSources {
  readonly policy: { isSupported(): boolean }
  readonly config: {
    readonly memAgentEnable: boolean
    readonly visibleCdiDevices: boolean
    readonly passfdListenerPort: number
    readonly outputReplayBytes: number
    readonly debugConsole: boolean
    readonly debugConsolePort: number
  }
  /** Why the guest has no shell; undefined when it has one. */
  readonly noShell: string | undefined
}

/** Programs that the agent runs, besides the OCI runtime. */
export const PROGRAMS: readonly string[] = [
  '/sbin/modprobe',
  '/sbin/mkfs.ext4',
  '/usr/sbin/iptables-save',
  '/usr/sbin/iptables-restore',
  '/usr/sbin/ip6tables-save',
  '/usr/sbin/ip6tables-restore',
]

/** The parts of the agent that a setting turns on, or that the image may lack. */
export function featuresOf({ policy, config, noShell }: FeatureSources): readonly Feature[] {
  const bySetting = (name: string, isOn: boolean, setting: string, value?: string) => ({
    name,
    missing: isOn
      ? undefined
      : `${setting} is not set${value === undefined ? '' : `, want ${setting}${value}`}`,
  })
  return [
    { name: 'policy', missing: policy.isSupported() ? undefined : NO_POLICY_ENGINE },
    debugConsole(config, noShell),
    bySetting('memory agent', config.memAgentEnable, 'agent.mem_agent_enable'),
    bySetting('devices by VISIBLE_CDI_DEVICES', config.visibleCdiDevices, 'agent.visible_cdi_devices'),
    bySetting('output again', config.outputReplayBytes > 0, 'agent.output_replay_bytes', '=65536'),
    bySetting('streams on a port', config.passfdListenerPort > 0, 'agent.passfd_listener_port'),
  ]
}

/** Names missing settings and a missing shell together, so that one new boot of the guest can supply both. */
function debugConsole(
  { debugConsole: isOn, debugConsolePort: port }: FeatureSources['config'],
  noShell: string | undefined,
): Feature {
  const words = 'agent.debug_console agent.debug_console_vport=1026'
  const isOff = isOn ? undefined : `agent.debug_console is not set, want ${words}`
  const missing = [isOff, noShell].filter((each) => each !== undefined).join('; ')
  return {
    name: 'debug console',
    missing: missing === '' ? undefined : missing,
    detail: port === 0 ? '/dev/console' : `port ${port}`,
  }
}
