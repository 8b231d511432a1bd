/* An object for misfortunes.c to load: its function stays on the stack of what it calls. */

void unconvoy_call_back(void (*function)(int), int argument);

void unconvoy_call_back(void (*function)(int), int argument)
{
	function(argument);
	__asm__ volatile("");
}
