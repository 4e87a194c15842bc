// Answers QMP at the socket of QEMU's arguments.
import { FakeQemu } from './fake-qemu.ts'

const [, socket = ''] = /,path=([^,]+)/.exec(process.argv.join(' ')) ?? []
new FakeQemu(socket, () => process.exit())
