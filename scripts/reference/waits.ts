import { globSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { projectRoot } from '../../src/build/project.ts'
import { type Setting, seconds } from '../../src/settings/setting-types.ts'
import { SETTING_KEYS, SETTINGS, type SettingKey } from '../../src/settings/settings.ts'

const FOLDERS = ['agent', 'base', 'handlers', 'hotplug', 'oci', 'os', 'rpc']
const NO_WAITS = ['src/base/abort.ts LONGEST_TIMER_MS']
const CONSTANT = /^(?:export )?const ([A-Z_]+_(?:MS|SECONDS)) = ([\d_]+)n?$/gm
/** A row: what waits, the time, and cells among which one names the constant. */
const ROW = /^(\|.*?\| )[\d.]+ (?:ms|s)( \|.*?`(src\/\S+\.ts)` ([A-Z_]+) \|.*)$/gm

/** What a setting bounds, and what happens at the bound. */
const BY_SETTING: Partial<
  Readonly<Record<SettingKey, readonly [bounds: string, unit: string, then: string]>>
> = {
  hangTimeoutSecs: [
    'an answer of the agent to a ping of the broker',
    's',
    'the agent is killed and started again',
  ],
  hotplugTimeoutMs: ['a device that a call or the boot needs', 's', 'INTERNAL, with what is missing'],
  containerPipeSizeBytes: [
    'unread bytes of a pipe of stdio',
    'bytes',
    'the container waits for room when it writes',
  ],
  outputReplayBytes: ['the last output that a stream keeps', 'bytes', 'the oldest bytes are dropped'],
  streamGraceMs: ['another vsock device for a stream over a port', 's', 'the stream ends'],
  dialTimeoutMs: ['the connection to a port of the host', 's', 'INTERNAL, with the stream and the port'],
  memoryReserve: ['memory that all containers leave', 'MiB', 'the kernel ends a process of a container'],
  cdiTimeoutMs: ['the CDI specification of a device', 's', 'INTERNAL, with the device'],
  memAgentCompactSecMax: ['a compaction of the memory', 's', 'it is stopped'],
}

/** The table by setting, in the order of the settings. Throws for a time that has an effect and no row. */
export function boundsTable(): string {
  const rows = SETTING_KEYS.flatMap((key) => {
    const setting: Setting<unknown> = SETTINGS[key]
    const row = BY_SETTING[key]
    if (row === undefined && setting.type === seconds && setting.hasNoEffect !== true)
      throw new Error(`waits.md has no row for the setting ${key}`)
    if (row === undefined) return []
    const [bounds, unit, then] = row
    return [
      `| \`${setting.commandLine}\` | ${setting.type.show(setting.default)} ${unit} | ${bounds} | ${then} |`,
    ]
  })
  return ['| setting | default | bounds | then |', '|---|---|---|---|', ...rows].join('\n')
}

/**
 * Writes the times of the agent's constants into the rows of the page, whose words stay. Throws for a constant without a row,
 * and for a row without a constant.
 */
export function waitsPage(page: string): string {
  const constants = waitsOfCode()
  const missing = new Set(constants.keys())
  const written = page.replace(ROW, (_row, before: string, after: string, file: string, name: string) => {
    const constant = `${file} ${name}`
    const ms = constants.get(constant)
    if (ms === undefined) throw new Error(`${constant}: not found in the code`)
    missing.delete(constant)
    return `${before}${timeText(ms)}${after}`
  })
  if (missing.size > 0) throw new Error(`waits.md has no row for ${[...missing].join(', ')}`)
  return written
}

/** The agent's constants with a time in their names, in milliseconds. */
function waitsOfCode(): ReadonlyMap<string, number> {
  const files = FOLDERS.flatMap((folder) => globSync(`src/${folder}/**/*.ts`, { cwd: projectRoot }))
  const waits = files.flatMap((file) =>
    [...readFileSync(join(projectRoot, file), 'utf8').matchAll(CONSTANT)].map(
      ([, name = '', value = '']) =>
        [
          `${file} ${name}`,
          Number(value.replaceAll('_', '')) * (name.endsWith('_SECONDS') ? 1000 : 1),
        ] as const,
    ),
  )
  return new Map(waits.filter(([constant]) => !NO_WAITS.includes(constant)))
}

function timeText(ms: number): string {
  return ms % 1000 === 0 ? `${ms / 1000} s` : `${ms} ms`
}
