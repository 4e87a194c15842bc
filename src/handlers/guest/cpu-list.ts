/** How many CPUs a list of the kernel names, such as `0-3,8` (cpumask format of sysfs and cgroups); none when empty. */
export function countCpus(list: string): number {
  const ranges = list.trim().split(',')
  return ranges.reduce((sum, range) => sum + sizeOf(range), 0)
}

function sizeOf(range: string): number {
  if (range === '') return 0
  const [first = '', last = first] = range.split('-')
  return Number(last) - Number(first) + 1
}
