import { checkPath } from './check-path.ts'
import { refuse, shown } from './component-path.ts'
import {
  MAX_COMMAND_LINE_BYTES,
  MAX_CPU_MILLI,
  MAX_CPUS,
  MAX_MEMORY_MIB,
  MAX_MEMORY_SLOTS,
  MAX_REBOOT_SECONDS,
  MAX_REBOOTS,
  MAX_TASKS,
  MIN_CPU_MILLI,
  MIN_TASKS,
} from './limits.ts'
import { type Board, chipsetOf, type Limits, MACHINES, NO_LIMITS, type VmSpec } from './spec.ts'

/** Throws INVALID_ARGUMENT that names the field of the board for which no machine can be made. */
export function checkBoard({ board, devices, rebootLimit, limits = NO_LIMITS }: VmSpec): void {
  const { machine, memoryMib, cpus } = board
  if (!MACHINES.includes(machine)) refuse('board.machine', `${shown(machine)}: want ${MACHINES.join(', ')}`)
  checkNumber('board.memory_mib', memoryMib, 1, MAX_MEMORY_MIB)
  checkNumber('board.cpus', cpus, 1, MAX_CPUS)
  checkRoom(board)
  if (board.generationId && chipsetOf(machine) === 'microvm')
    refuse('board.generation_id', 'machine microvm has no vmgenid')
  const modules = Object.values(devices).filter(({ kind }) => kind === 'nvdimm').length
  if (modules + (board.room?.memorySlots ?? 0) > MAX_MEMORY_SLOTS) {
    refuse('board.room.memory_slots', `more than ${MAX_MEMORY_SLOTS} with those of persistent memory`)
  }
  if (board.kernel === undefined) checkFirmwareBoot(board, devices)
  else checkBootFiles(board, board.kernel)
  if (rebootLimit !== undefined) {
    checkNumber('reboot_limit.count', rebootLimit.count, 0, MAX_REBOOTS)
    checkNumber('reboot_limit.seconds', rebootLimit.seconds, 1, MAX_REBOOT_SECONDS)
  }
  checkLimits(limits, memoryMib)
}

export function checkNumber(path: string, value: number, least: number, most: number): void {
  if (Number.isInteger(value) && value >= least && value <= most) return
  refuse(path, `${value}: want ${least} to ${most}`)
}

/** 0 is a default everywhere. QEMU would not start with less memory or fewer tasks. */
function checkLimits({ memoryMib, cpuMilli, tasks }: Limits, guestMib: number): void {
  if (memoryMib !== 0) checkNumber('limits.memory_mib', memoryMib, guestMib, 2 * MAX_MEMORY_MIB)
  if (cpuMilli !== 0) checkNumber('limits.cpu_milli', cpuMilli, MIN_CPU_MILLI, MAX_CPU_MILLI)
  if (tasks !== 0) checkNumber('limits.tasks', tasks, MIN_TASKS, MAX_TASKS)
}

function checkRoom({ machine, room, cpus, memoryMib }: Board): void {
  if (room === undefined) return
  if (chipsetOf(machine) === 'microvm') {
    refuse('board.room', 'machine microvm has no room for CPUs or memory')
  }
  checkNumber('board.room.cpus', room.cpus, 0, MAX_CPUS - cpus)
  checkNumber('board.room.memory_mib', room.memoryMib, 0, MAX_MEMORY_MIB - memoryMib)
  checkNumber('board.room.memory_slots', room.memorySlots, 0, MAX_MEMORY_SLOTS)
}

/** The firmware of machine `microvm` boots no disk. */
function checkFirmwareBoot(board: Board, devices: VmSpec['devices']): void {
  const { machine, commandLine } = board
  if (chipsetOf(machine) === 'microvm' || !Object.values(devices).some(({ kind }) => kind === 'disk'))
    refuse('board.kernel', 'missing, and there is no disk that the firmware could boot')
  for (const name of ['initrd', 'vmlinux'] as const)
    if (board[name] !== undefined) refuse(`board.${name}`, 'not possible without a kernel')
  if (commandLine !== '') refuse('board.command_line', 'not possible without a kernel')
}

function checkBootFiles(board: Board, kernel: string): void {
  const { initrd, vmlinux, commandLine, firmware } = board
  if (firmware !== undefined) refuse('board.firmware', 'not possible with a kernel')
  checkPath('board.kernel', kernel)
  if (initrd !== undefined) checkPath('board.initrd', initrd)
  if (vmlinux !== undefined) checkPath('board.vmlinux', vmlinux)
  const bytes = Buffer.byteLength(commandLine)
  if (bytes > MAX_COMMAND_LINE_BYTES) {
    refuse('board.command_line', `${bytes} bytes, want at most ${MAX_COMMAND_LINE_BYTES}`)
  }
  if (/\p{Cc}/u.test(commandLine)) refuse('board.command_line', 'has a control character')
}
