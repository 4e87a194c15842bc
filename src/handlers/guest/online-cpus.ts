import { AgentError, messageOf } from '../../base/errors.ts'
import { type Probe, waitForDevice } from '../../hotplug/wait-for-device.ts'
import type { Files } from '../../os/files/files.ts'
import type { Os } from '../../os/os.ts'

const CPUS = '/sys/devices/system/cpu'

/** As long as 100 attempts that are 50 ms apart. */
const TIMEOUT_MS = 5000
/** The kernel sends no event when a CPU that it refused can be brought online later. */
const RETRY_MS = 50

/**
 * Brings CPUs online until `wanted` are, including those of the boot, and waits for CPUs that are being plugged in. Throws
 * INVALID_ARGUMENT when the guest can never have so many, INTERNAL after 5 s.
 */
export async function onlineCpus(
  os: Pick<Os, 'clock' | 'files' | 'uevents'>,
  wanted: number,
  signal: AbortSignal,
): Promise<void> {
  const { files, uevents, clock } = os
  const possible = countCpus(await files.readText(`${CPUS}/possible`))
  if (wanted > possible) {
    const text = `nb_cpus: ${wanted}, want at most ${possible} (the possible CPUs of this guest)`
    throw new AgentError('INVALID_ARGUMENT', text)
  }
  try {
    await waitForDevice(
      { uevents, clock, timeoutMs: TIMEOUT_MS },
      {
        description: `CPUs until ${wanted} are online`,
        probe: () => bringOnline(files, wanted),
        matches: ({ subsystem }) => subsystem === 'cpu',
        retryMs: RETRY_MS,
      },
      signal,
    )
  } catch (error) {
    if (signal.aborted) throw error
    const missing = wanted - countCpus(await listOnlineCpus(files))
    throw new AgentError('INTERNAL', `failed to online ${missing} CPU(s)`, { cause: error })
  }
}

/** The online CPUs in the kernel's list format: `0-3`. */
export async function listOnlineCpus(files: Files): Promise<string> {
  return (await files.readText(`${CPUS}/online`)).trim()
}

async function bringOnline(files: Files, wanted: number): Promise<Probe<true>> {
  const refusals: unknown[] = []
  let missing = wanted - countCpus(await listOnlineCpus(files))
  for (const file of missing > 0 ? await offlineCpus(files) : []) {
    if (missing === 0) break
    try {
      await files.write(file, '1')
      missing -= 1
    } catch (error) {
      refusals.push(error)
    }
  }
  const online = await listOnlineCpus(files)
  if (countCpus(online) >= wanted) return { found: true }
  const [refusal] = refusals
  const why = refusal === undefined ? '' : ` (${messageOf(refusal)})`
  return { missing: `other CPUs than ${online}${why}` }
}

/** The boot CPU may have no `online` file, because it cannot be taken offline. */
async function offlineCpus(files: Files): Promise<string[]> {
  const numbers = (await files.list(CPUS)).flatMap((name) => /^cpu([0-9]+)$/.exec(name)?.[1] ?? [])
  const offline: string[] = []
  for (const number of numbers.toSorted((a, b) => Number(a) - Number(b))) {
    const file = `${CPUS}/cpu${number}/online`
    if ((await files.stat(file)) === undefined) continue
    if ((await files.readText(file)).trim() === '0') offline.push(file)
  }
  return offline
}

/** Counts the CPUs in a list of the kernel, such as `0-3,8` (sysfs and cgroups). */
export function countCpus(list: string): number {
  const ranges = list.trim().split(',')
  return ranges.reduce((sum, range) => sum + sizeOf(range), 0)
}

function sizeOf(range: string): number {
  if (range === '') return 0
  const [first = '', last = first] = range.split('-')
  return Number(last) - Number(first) + 1
}
