// Answers QMP at the socket of QEMU's arguments.
import { FakeQemu } from './fake-qemu.ts'

const [, name, value = ''] = /,(fd|path)=([^,]+)/.exec(process.argv.join(' ')) ?? []
new FakeQemu(name === 'fd' ? { fd: Number(value) } : value, () => process.exit())
