import { execFile } from 'node:child_process'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { projectRoot } from '../../src/build/project.ts'

const GUESTS = [
  { form: 'disk', kernel: 'trixie', memoryMib: 128 },
  { form: 'disk', kernel: 'bookworm', memoryMib: 128 },
  { form: 'disk', kernel: 'trixie', memoryMib: 1024 },
  { form: 'initrd', kernel: 'trixie', memoryMib: 1024 },
] as const

/**
 * `node bench/guest/guest-memory.ts`: the guest's used memory (MemTotal - MemAvailable of /proc/meminfo) while the agent
 * serves one container that only reads that file. Prints one JSON line for each form of the image.
 */
async function main(): Promise<void> {
  for (const guest of GUESTS) {
    const options = ['--form', guest.form, '--kernel', guest.kernel, '--memory', String(guest.memoryMib)]
    const command = ['run', ...options, 'cat', '/proc/meminfo']
    const { stdout } = await promisify(execFile)(join(projectRoot, 'microvm'), command)
    const [total, available] = [mebibytes(stdout, 'MemTotal'), mebibytes(stdout, 'MemAvailable')]
    const line = { figure: 'guest memory', ...guest, unit: 'MiB', total, available, used: total - available }
    process.stdout.write(`${JSON.stringify(line)}\n`)
  }
}

function mebibytes(meminfo: string, key: string): number {
  const kibibytes = meminfo.match(new RegExp(`^${key}: +(\\d+) kB$`, 'm'))?.[1]
  if (kibibytes === undefined) throw new Error(`the guest's /proc/meminfo has no ${key}`)
  return Math.round(Number(kibibytes) / 1024)
}

await main()
