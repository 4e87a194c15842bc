import { benchPod } from '../support/bench-pod.ts'
import { median } from '../support/figure.ts'
import { elapsedMs } from '../support/runtime-pair.ts'

const KIB = [1, 32, 1024, 32_768, 1_048_576]
const ROUNDS = 3
/** The longest answer, and as much for a request. */
const LENGTH = 1 << 20

/** How long a process's output and input take by ReadStdout and WriteStdin. */
export async function stdio() {
  const pod = await benchPod({ runtime: 'crun' })
  const rows: number[][] = []
  try {
    await pod.run('stdio', ['/bin/sleep', '1000000'])
    for (const kib of KIB) {
      const bytes = kib * 1024
      const [read, written]: [number[], number[]] = [[], []]
      for (let round = 0; round < ROUNDS; round += 1) {
        const id = `${kib}-${round}`
        const source = await pod.add('stdio', `read-${id}`, ['/bin/head', '-c', `${bytes}`, '/dev/zero'])
        read.push(
          await elapsedMs(async () => {
            let total = 0
            for (;;) {
              const { length } = await source.read('stdout', LENGTH)
              if (length === 0) break
              total += length
            }
            if (total !== bytes) throw new Error(`${total} bytes came instead of ${bytes}`)
          }),
        )
        await source.wait()
        const sink = await pod.add('stdio', `write-${id}`, ['/bin/sh', '-c', 'exec cat > /dev/null'])
        const part = Buffer.alloc(Math.min(bytes, LENGTH))
        written.push(
          await elapsedMs(async () => {
            for (let sent = 0; sent < bytes; sent += part.length) await sink.write(part)
            await sink.closeStdin()
            await sink.wait()
          }),
        )
      }
      const [readMs, writtenMs] = [median(read), median(written)]
      const mib = kib / 1024
      rows.push([kib, readMs, writtenMs, (mib / readMs) * 1000, (mib / writtenMs) * 1000])
    }
  } finally {
    await pod.stop()
  }
  return {
    title: 'Bytes of stdio',
    text: 'The time until all of the output was read, and until the input was read by a process that then ended, 1 MiB a call.',
    columns: ['KiB', 'ReadStdout, ms', 'WriteStdin, ms', 'ReadStdout, MiB/s', 'WriteStdin, MiB/s'],
    rows,
  }
}
