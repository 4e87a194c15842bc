import type { Fd } from '../../../src/os/streams/streams.ts'
import type { FakeOs } from '../fakes/fake-os.ts'

export async function readToEnd({ streams }: FakeOs, fd: Fd): Promise<string> {
  let text = ''
  for (;;) {
    await streams.readable(fd)
    const chunk = streams.tryRead(fd, 65_536)
    if (chunk?.length === 0) return text
    text += chunk?.toString() ?? ''
  }
}

export function write({ streams }: FakeOs, fd: Fd, text: string): void {
  streams.tryWrite(fd, Buffer.from(text))
}
